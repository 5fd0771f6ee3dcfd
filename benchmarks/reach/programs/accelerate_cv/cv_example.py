"""Image classification with accelerate."""

import argparse
import os

import numpy as np
import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import set_seed
from PIL import Image
from step_clock import StepClock
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset


class PetsDataset(Dataset):
    """Stripes in eight widths, with noise, as an image folder would give them."""

    def __init__(self, n, size, classes):
        self.n, self.size, self.classes = n, size, classes

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        rng = np.random.default_rng(idx)
        label = idx % self.classes
        wave = np.sin(np.arange(160) / (1 + label))[None].repeat(160, 0)
        pixels = (wave * 60 + 128 + rng.normal(0, 20, (160, 160))).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(pixels).convert("RGB")
        image = image.resize((self.size, self.size), Image.BILINEAR)
        array = np.asarray(image, dtype=np.float32) / 255
        return {"image": torch.from_numpy(array).permute(2, 0, 1), "label": label}


def build(classes):
    def block(a, b):
        return torch.nn.Sequential(
            torch.nn.Conv2d(a, b, 3, stride=2, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU()
        )

    return torch.nn.Sequential(
        block(3, 16),
        block(16, 32),
        block(32, 64),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, classes),
    )


def training_function(config):
    train, data = config["train"], config["data"]
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=train["gradient_accumulation_steps"]
    )
    set_seed(train["seed"])
    dataset = PetsDataset(data["n_images"], train["image_size"], data["classes"])
    cut = int(0.9 * len(dataset))
    subsets = torch.utils.data.random_split(dataset, [cut, len(dataset) - cut])
    train_dataloader = DataLoader(
        subsets[0], shuffle=True, batch_size=train["batch_size"], num_workers=data["num_workers"]
    )
    eval_dataloader = DataLoader(
        subsets[1], shuffle=False, batch_size=train["batch_size"], num_workers=data["num_workers"]
    )
    model = build(data["classes"])
    optimizer = torch.optim.Adam(params=model.parameters(), lr=train["lr"] / 25)
    scheduler = OneCycleLR(
        optimizer,
        max_lr=train["lr"],
        epochs=train["num_epochs"],
        steps_per_epoch=len(train_dataloader),
    )
    model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, scheduler
    )
    clock = StepClock()
    for epoch in range(train["num_epochs"]):
        model.train()
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                outputs = model(batch["image"])
                loss = torch.nn.functional.cross_entropy(outputs, batch["label"])
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            clock.tick(len(batch["label"]))
        model.eval()
        accurate = num_elems = 0
        for batch in eval_dataloader:
            with torch.no_grad():
                predictions = model(batch["image"]).argmax(dim=-1)
            found, wanted = accelerator.gather_for_metrics((predictions, batch["label"]))
            accurate += (found == wanted).sum().item()
            num_elems += len(wanted)
        accelerator.print(f"epoch {epoch}: {100 * accurate / num_elems:.2f}")
        os.makedirs(config["output_dir"], exist_ok=True)
        accelerator.save(
            accelerator.unwrap_model(model).state_dict(),
            os.path.join(config["output_dir"], f"epoch_{epoch}.pt"),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.yaml")
    training_function(yaml.safe_load(open(parser.parse_args().config)))
