"""python train_net.py --config-file configs/base.yaml SOLVER.IMS_PER_BATCH 4"""

import argparse
import ast
import os

import torch
import yaml
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    """Images of all sizes, with one to five bright boxes."""

    def __init__(self, n, low, high):
        self.n, self.low, self.high = n, low, high

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        height, width = torch.randint(self.low, self.high, (2,), generator=g).tolist()
        image = torch.rand(3, height, width, generator=g) * 0.3
        many = int(torch.randint(1, 6, (1,), generator=g))
        corner = torch.rand(many, 2, generator=g) * torch.tensor([width - 24.0, height - 24.0])
        size = 8 + torch.rand(many, 2, generator=g) * 16
        boxes = torch.cat([corner, corner + size], 1)
        labels = torch.randint(4, (many,), generator=g)
        for (x0, y0, x1, y1), label in zip(boxes.int().tolist(), labels.tolist()):
            image[label % 3, y0:y1, x0:x1] += 0.5
        return image, {"boxes": boxes, "labels": labels, "image_id": index}


def collate_fn(batch):
    return tuple(zip(*batch))


class Detector(nn.Module):
    """One stage; takes lists, and gives a dict of losses in training."""

    def __init__(self, channels, classes):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, 2, 1), nn.ReLU(),
        )  # fmt: skip
        self.cls_head = nn.Conv2d(2 * channels, classes, 1)
        self.box_head = nn.Conv2d(2 * channels, 4, 1)

    def forward(self, images, targets=None):
        height = max(image.shape[1] for image in images)
        width = max(image.shape[2] for image in images)
        batch = images[0].new_zeros(len(images), 3, -(-height // 8) * 8, -(-width // 8) * 8)
        for slot, image in zip(batch, images):
            slot[:, : image.shape[1], : image.shape[2]].copy_(image)
        features = self.backbone(batch)
        scores, boxes = self.cls_head(features), self.box_head(features)
        if targets is None:
            return [{"scores": s.sigmoid(), "boxes": b} for s, b in zip(scores, boxes)]
        wanted, box_losses = torch.zeros_like(scores), []
        for n, target in enumerate(targets):
            cells = ((target["boxes"][:, :2] + target["boxes"][:, 2:]) / 16).long()
            wanted[n, target["labels"], cells[:, 1], cells[:, 0]] = 1
            box_losses.append(
                (boxes[n, :, cells[:, 1], cells[:, 0]].T - target["boxes"] / 100).abs().mean()
            )
        return {
            "loss_cls": nn.functional.binary_cross_entropy_with_logits(scores, wanted),
            "loss_box": torch.stack(box_losses).mean(),
        }


def setup(args):
    with open(args.config_file) as f:
        cfg = yaml.safe_load(f)
    for key, text in zip(args.opts[::2], args.opts[1::2]):
        *parents, leaf = key.split(".")
        here = cfg
        for parent in parents:
            here = here[parent]
        if leaf not in here:
            raise KeyError(f"Non-existent config key: {key}")
        here[leaf] = ast.literal_eval(text) if not isinstance(here[leaf], str) else text
    return cfg


def main(args):
    cfg = setup(args)
    torch.manual_seed(0)
    data = Boxes(cfg["DATASETS"]["TRAIN_SIZE"], cfg["INPUT"]["MIN_SIZE"], cfg["INPUT"]["MAX_SIZE"])
    loader = DataLoader(
        data,
        batch_size=cfg["SOLVER"]["IMS_PER_BATCH"],
        shuffle=True,
        num_workers=cfg["DATALOADER"]["NUM_WORKERS"],
        collate_fn=collate_fn,
    )
    model = Detector(cfg["MODEL"]["CHANNELS"], cfg["MODEL"]["NUM_CLASSES"])
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["SOLVER"]["BASE_LR"], momentum=0.9)
    clock, iteration = StepClock(), 0
    os.makedirs(cfg["OUTPUT_DIR"], exist_ok=True)
    while iteration < cfg["SOLVER"]["MAX_ITER"]:
        for images, targets in loader:
            losses = model(list(images), list(targets))
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            clock.tick(len(images))
            iteration += 1
            if iteration % cfg["SOLVER"]["CHECKPOINT_PERIOD"] == 0:
                print(iteration, {name: round(loss.item(), 4) for name, loss in losses.items()})
                path = os.path.join(cfg["OUTPUT_DIR"], f"model_{iteration:07d}.pth")
                torch.save(model.state_dict(), path)
            if iteration >= cfg["SOLVER"]["MAX_ITER"]:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config-file", default="", metavar="FILE", help="path to config file")
    parser.add_argument("--num-gpus", type=int, default=1)
    parser.add_argument(
        "opts", nargs=argparse.REMAINDER, help="Modify config options using the command-line"
    )
    main(parser.parse_args())
