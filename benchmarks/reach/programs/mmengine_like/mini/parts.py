import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from .registry import DATASETS, MODELS, TRANSFORMS


@TRANSFORMS.register_module()
class DrawShape:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, results):
        rng = np.random.default_rng(results["index"])
        image = Image.new("RGB", (self.scale, self.scale), tuple(rng.integers(0, 120, 3).tolist()))
        corners = results["label"] + 3
        angles = rng.uniform(0, 6) + np.arange(corners) * 2 * np.pi / corners
        half = self.scale / 2
        points = [(half + half * 0.8 * np.cos(a), half + half * 0.8 * np.sin(a)) for a in angles]
        ImageDraw.Draw(image).polygon(points, fill=tuple(rng.integers(130, 255, 3).tolist()))
        return {**results, "img": image}


@TRANSFORMS.register_module()
class RandomFlip:
    def __init__(self, prob):
        self.prob = prob

    def __call__(self, results):
        if np.random.rand() < self.prob:
            results["img"] = results["img"].transpose(Image.FLIP_LEFT_RIGHT)
        return results


@TRANSFORMS.register_module()
class Resize:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, results):
        results["img"] = results["img"].resize((self.scale, self.scale), Image.BILINEAR)
        return results


@TRANSFORMS.register_module()
class PackInputs:
    def __call__(self, results):
        pixels = torch.from_numpy(np.asarray(results["img"]).copy()).permute(2, 0, 1)
        return {"inputs": pixels, "data_samples": {"gt_label": results["label"]}}


@DATASETS.register_module()
class Shapes(torch.utils.data.Dataset):
    def __init__(self, length, pipeline):
        self.length = length
        self.pipeline = [TRANSFORMS.build(step) for step in pipeline]

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        results = {"index": index, "label": index % 6}
        for transform in self.pipeline:
            results = transform(results)
        return results


@MODELS.register_module()
class TinyNet(nn.Sequential):
    def __init__(self, depth, base_channels):
        widths = [3, *[base_channels * 2**n for n in range(depth)]]
        super().__init__(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in zip(widths, widths[1:])
            )
        )


@MODELS.register_module()
class LinearClsHead(nn.Linear):
    def __init__(self, num_classes, in_channels):
        super().__init__(in_channels, num_classes)


@MODELS.register_module()
class Classifier(nn.Module):
    def __init__(self, backbone, head):
        super().__init__()
        self.backbone, self.head = MODELS.build(backbone), MODELS.build(head)

    def forward(self, inputs, data_samples, mode="tensor"):
        x = torch.stack(inputs).float() / 255
        scores = self.head(self.backbone(x).mean((2, 3)))
        if mode == "tensor":
            return scores
        labels = torch.tensor([sample["gt_label"] for sample in data_samples])
        return {"loss": nn.functional.cross_entropy(scores, labels)}
