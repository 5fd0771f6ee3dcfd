"""Segmentation of a batch, resized for it; albedo, shadow and recombination of each image."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.workloads.relighting.networks import AlbedoNet, Segmenter, ShadowNet
from benchmarks.workloads.relighting.portraits import AMBIENT, Array

WEIGHTS = Path(__file__).parent / "weights.pt"
LIGHT_LEVELS = 0.15, 0.85


class Clock:
    """The program's own account of where its time goes."""

    def __init__(self, device: torch.device) -> None:
        self.spans: list[tuple[str, float, float]] = []
        """Stage, and the epoch seconds of its begin and end."""
        self._device = device

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What happens inside is of stage `name`, the work of the device included."""
        started = time.time()
        try:
            yield
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        finally:
            self.spans.append((name, started, time.time()))

    @property
    def seconds(self) -> dict[str, float]:
        """By stage."""
        spent: dict[str, float] = {}
        for name, started, ended in self.spans:
            spent[name] = spent.get(name, 0.0) + ended - started
        return spent


class Relighter:
    """Takes the light off a person and puts another one on."""

    def __init__(self, cfg: dict[str, Any], scale: int, device: torch.device) -> None:
        torch.manual_seed(cfg["seed"])
        self.device = device
        self.size = cfg["segmentation"]["size"] * scale
        self.target_size = cfg["segmentation"]["target_size"]
        self.bf16 = cfg["segmentation"]["precision"] == "bf16"
        networks = build(cfg, scale)
        if scale == 1:
            networks.load_state_dict(torch.load(WEIGHTS, map_location="cpu", weights_only=True))
        networks.to(device).eval()
        self.segmenter, self.albedo_net, self.shadow_net = networks
        self.light = np.random.default_rng(cfg["seed"])
        self.clock = Clock(device)

    @torch.inference_mode()
    def relight(self, images: list[Array]) -> tuple[list[Array], list[Array]]:
        """Relit images (H, W, 3) and masks (H, W), each of its image's size."""
        masks = self.segment(images)
        relit = []
        for image, mask in zip(images, masks, strict=True):
            with self.clock.stage("albedo"):
                pixels = torch.from_numpy(image).permute(2, 0, 1)[None].to(self.device)
                albedo = self.albedo_net(torch.cat([pixels * mask, mask[None, None]], dim=1))
            with self.clock.stage("shadow"):
                shading = self.shadow_net(torch.cat([pixels, albedo], dim=1))
            with self.clock.stage("recombine"):
                relit.append(self.recombine(image, mask, albedo, shading))
        return relit, [mask.cpu().numpy() for mask in masks]

    def segment(self, images: list[Array]) -> list[Tensor]:
        """Masks (H, W) of the person, all images in one call of the network."""
        side = (self.size, self.size)
        with self.clock.stage("resize"):
            stack = torch.cat([
                functional.interpolate(torch.from_numpy(image).permute(2, 0, 1)[None], side)
                for image in images
            ]).to(self.device)  # fmt: skip
        bf16 = torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)
        with self.clock.stage("segmentation"), bf16:
            logits = self.segmenter(stack)
        first = images[0].shape[:2]
        with self.clock.stage("resize"):
            return [
                (
                    functional.interpolate(
                        each[None, None],
                        first if self.target_size == "first" else image.shape[:2],
                        mode="bilinear",
                    )[0, 0]
                    > 0
                ).float()
                for image, each in zip(images, logits.float(), strict=True)
            ]

    def recombine(self, image: Array, mask: Tensor, albedo: Tensor, shading: Tensor) -> Array:
        """The person under another light, before its background; no lighter where it was dark."""
        inside = mask.cpu().numpy()[..., None]
        colour = albedo[0].permute(1, 2, 0).cpu().numpy()
        before = shading[0, 0].cpu().numpy()[..., None]
        low, high = self.light.uniform(*LIGHT_LEVELS, 2)
        ramp = np.linspace(low, high, image.shape[1], dtype=np.float32)[None, :, None]
        after = AMBIENT + (1 - AMBIENT) * ramp * np.clip(before / max(before.max(), 1e-3), 0, 1)
        return (inside * colour * after + (1 - inside) * image).astype(np.float32)


def build(cfg: dict[str, Any], scale: int) -> torch.nn.ModuleList:
    """Segmenter, AlbedoNet and ShadowNet, `scale` times as wide on images as many times larger."""
    size = cfg["segmentation"]["size"] * scale
    shape = dict(cfg["model"]["segmenter"])
    shape["width"] *= scale
    shape["heads"] *= scale
    return torch.nn.ModuleList([
        Segmenter(size, **shape),
        AlbedoNet(cfg["model"]["albedo_width"] * scale),
        ShadowNet(cfg["model"]["shadow_width"] * scale),
    ])  # fmt: skip
