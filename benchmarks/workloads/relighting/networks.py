"""The three networks: who is the person, what colour has it, what light falls on it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

PATCH = 8


class Block(nn.Module):
    """Attention over all patches, then a layer for each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, many, width = tokens.shape
        parts = self.mix(self.before(tokens)).reshape(batch, many, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.out(seen.transpose(1, 2).reshape(batch, many, width))
        return tokens + self.narrow(functional.gelu(self.wide(self.between(tokens))))


class Segmenter(nn.Module):
    """Logits (B, H, W) of the person in images (B, 3, H, W), H and W as it was built for."""

    def __init__(self, size: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.place = nn.Parameter(torch.randn((size // PATCH) ** 2, width) * 0.1)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, PATCH**2))

    def forward(self, images: Tensor) -> Tensor:
        grid = self.patches(images - 0.5)
        tokens = self.head(self.blocks(grid.flatten(2).transpose(1, 2) + self.place))
        return functional.pixel_shuffle(
            tokens.transpose(1, 2).reshape(len(images), PATCH**2, *grid.shape[2:]), PATCH
        )[:, 0]


class AlbedoNet(nn.Module):
    """Colour in even light (B, 3, H, W) of images (B, 4, H, W): red, green, blue and mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=2, dilation=2), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=4, dilation=4), nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        return torch.sigmoid(self.layers(images))


class ShadowNet(nn.Module):
    """Light (B, 1, H, W) on the person, from the image and its albedo (B, 6, H, W)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(6, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        return torch.sigmoid(self.layers(images))
