"""The denoiser: a small U-Net told how noisy its input is, and the surroundings of the void."""

import math

import torch
from torch import Tensor, nn


def noise_embedding(gamma: Tensor, channels: int) -> Tensor:
    """Sinusoids of the angle between signal and noise; gamma (B,) in (0, 1] to (B, channels).

    The angle spreads both ends evenly: nearly clean (gamma near 1) and nearly pure noise.
    """
    angle = torch.atan2((1 - gamma).sqrt(), gamma.sqrt()) * (2 / math.pi)
    steps = torch.arange(channels // 2, device=gamma.device) / (channels // 2 - 1)
    phases = 1000 * angle[:, None] * 10 ** (-4 * steps)
    return torch.cat([phases.sin(), phases.cos()], dim=1)


class ResidualBlock(nn.Module):
    """Two convolutions with group norm; the noise level shifts and scales the second norm."""

    def __init__(self, inputs: int, outputs: int, embedding: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(4, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.modulation = nn.Linear(embedding, 2 * outputs)
        self.norm = nn.GroupNorm(4, outputs)
        self.second = nn.Sequential(nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.modulation(embedding)[:, :, None, None].chunk(2, dim=1)
        hidden = self.norm(self.first(x)) * (1 + scale) + shift
        return self.skip(x) + self.second(hidden)


class Attention(nn.Module):
    """Self-attention over all places of a feature map."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, channels // self.heads, -1)
        query, key, value = qkv.transpose(-1, -2).unbind(1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(-1, -2).reshape(batch, channels, height, width))


class Denoiser(nn.Module):
    """Three-level U-Net on pixels folded `patch` by `patch` into channels, refined unfolded.

    Input: noisy fill (B, 1, H, W), condition (B, C, H, W), gamma (B,); H and W divisible by
    4 * patch. Output: the velocity sqrt(gamma) * noise - sqrt(1 - gamma) * fill, (B, 1, H, W).
    """

    def __init__(
        self,
        condition_channels: int,
        inner_channel: int,
        channel_mults: list[int],
        patch: int,
        image_size: int,
    ) -> None:
        super().__init__()
        self.image_size = image_size
        wide, middle, deep = (inner_channel * mult for mult in channel_mults)
        embedding = 4 * inner_channel
        self.embedding_channels = 2 * inner_channel
        self.embed = nn.Sequential(
            nn.Linear(self.embedding_channels, embedding), nn.SiLU(),
            nn.Linear(embedding, embedding), nn.SiLU(),
        )  # fmt: skip
        self.fold = nn.PixelUnshuffle(patch)
        self.stem = nn.Conv2d((1 + condition_channels) * patch**2, wide, 3, padding=1)
        self.down1 = ResidualBlock(wide, wide, embedding)
        self.shrink1 = nn.Conv2d(wide, middle, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(middle, middle, embedding)
        self.shrink2 = nn.Conv2d(middle, deep, 3, stride=2, padding=1)
        self.mid1 = ResidualBlock(deep, deep, embedding)
        self.attention = Attention(deep, heads=4)
        self.mid2 = ResidualBlock(deep, deep, embedding)
        self.grow2 = nn.Upsample(scale_factor=2)
        self.up2 = ResidualBlock(deep + middle, middle, embedding)
        self.grow1 = nn.Upsample(scale_factor=2)
        self.up1 = ResidualBlock(middle + wide, wide, embedding)
        self.unfold = nn.Sequential(
            nn.GroupNorm(4, wide), nn.SiLU(),
            nn.Conv2d(wide, wide // 2 * patch**2, 3, padding=1), nn.PixelShuffle(patch),
        )  # fmt: skip
        self.refine = nn.Sequential(
            nn.Conv2d(wide // 2 + 1 + condition_channels, wide, 3, padding=1), nn.SiLU(),
            nn.Conv2d(wide, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, noisy: Tensor, condition: Tensor, gamma: Tensor) -> Tensor:
        level = self.embed(noise_embedding(gamma, self.embedding_channels))
        inputs = torch.cat([noisy, condition], dim=1)
        first = self.down1(self.stem(self.fold(inputs)), level)
        second = self.down2(self.shrink1(first), level)
        deep = self.mid1(self.shrink2(second), level)
        deep = self.mid2(self.attention(deep), level)
        second = self.up2(torch.cat([self.grow2(deep), second], dim=1), level)
        first = self.up1(torch.cat([self.grow1(second), first], dim=1), level)
        return self.refine(torch.cat([self.unfold(first), inputs], dim=1))
