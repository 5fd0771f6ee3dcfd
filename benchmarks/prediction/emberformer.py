"""Memory of the wildfire model in the two sizes that its guide measured with nvidia-smi.

The guide names the widths, the layers, six frames of 400 patches and the SegFormer of the decoder.
It does not name the size of the decoder's picture: both that of the map (400 patches of 16 x 16)
and that of the published SegFormers (512 x 512) are computed. Weights are random.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advisor.machine import profiles
from advisor.prediction.allocator import peak_of
from advisor.prediction.estimate import GIB, WORKSPACE_GIB
from benchmarks.prediction.tracing import traced, without_data

CARD = "rtx-3090"
FRAMES, PLACES, PATCH, CHANNELS = 6, 20, 16, 16


class Size(NamedTuple):
    """One config of the guide, and the gigabytes that it measured."""

    name: str
    batch: int
    width: int
    heads: int
    layers: int
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    decoder: int
    measured_gb: float


SIZES = (
    Size("small, SegFormer B0", 8, 64, 4, 3, (2, 2, 2, 2), (32, 64, 160, 256), 256, 2.7),
    Size("large, SegFormer B2", 32, 128, 8, 6, (3, 4, 6, 3), (64, 128, 320, 512), 768, 23.8),
)


class Emberformer(nn.Module):
    """Each patch attends over its own past; SegFormer draws the next map."""

    def __init__(self, size: Size, picture: int) -> None:
        super().__init__()
        from transformers import SegformerConfig, SegformerForSemanticSegmentation

        self.picture = picture
        self.encode = nn.Linear(CHANNELS * PATCH * PATCH // 16, size.width)
        layer = nn.TransformerEncoderLayer(size.width, size.heads, 4 * size.width, batch_first=True)
        self.temporal = nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False)
        self.colours = nn.Conv2d(size.width, 3, 1)
        config = SegformerConfig(
            depths=size.depths, hidden_sizes=size.widths, decoder_hidden_size=size.decoder,
            num_labels=1,
        )  # fmt: skip
        self.decode = SegformerForSemanticSegmentation(config)

    def forward(self, patches: Tensor) -> Tensor:
        batch = len(patches)
        tokens = self.encode(patches).permute(0, 2, 1, 3).flatten(0, 1)
        latest = self.temporal(tokens)[:, -1].reshape(batch, PLACES, PLACES, -1)
        picture = nn.functional.interpolate(latest.permute(0, 3, 1, 2), size=self.picture)
        small = self.decode(self.colours(picture)).logits
        return nn.functional.interpolate(small, size=PLACES * PATCH, mode="bilinear")


def reserved_gib(size: Size, picture: int) -> float:
    """Memory that one update takes on the card, its context included."""
    model = Emberformer(size, picture)
    with without_data(model):
        patches = torch.randn(size.batch, FRAMES, PLACES * PLACES, model.encode.in_features)
        target = torch.zeros(size.batch, 1, PLACES * PATCH, PLACES * PATCH)
        optimizer = torch.optim.AdamW(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                out = model(patches)
                loss = nn.functional.binary_cross_entropy_with_logits(out.float(), target)
            loss.backward()
            optimizer.step()

        peak = peak_of(traced(step, size.batch, optimizer))
    return peak.reserved / GIB + profiles.by_name(CARD).context_mib / 1024 + WORKSPACE_GIB


def main() -> None:
    """Print predicted and measured memory."""
    warnings.filterwarnings("ignore")
    for size in SIZES:
        for picture in (PLACES * PATCH, 512):
            found = reserved_gib(size, picture) * 1.073741824
            print(
                f"{size.name}, batch {size.batch}, picture {picture}: {found:.1f} GB predicted, "
                f"{size.measured_gb} measured"
            )
