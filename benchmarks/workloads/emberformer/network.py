"""Emberformer: each place of the map attends over its own past; neighbours mix by convolution."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Emberformer(nn.Module):
    """Predicts where it burns next.

    Input frames (B, T, C, H, W), H and W divisible by `patch`; output logits (B, H, W).
    """

    def __init__(
        self,
        channels: int,
        frames: int,
        patch: int,
        d_model: int,
        nhead: int,
        num_layers: int,
        dim_feedforward: int,
        decoder_width: int = 8,
        gradient_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.gradient_checkpointing = gradient_checkpointing
        self.encode = nn.Sequential(
            nn.Conv2d(channels, d_model, patch, stride=patch), nn.GELU(),
            nn.Conv2d(d_model, d_model, 3, padding=1),
        )  # fmt: skip
        self.time = nn.Parameter(torch.zeros(frames, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, dim_feedforward, dropout=0.0, batch_first=True, norm_first=True
        )
        self.temporal = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.decode = nn.Sequential(
            nn.Conv2d(d_model, d_model, 3, padding=1), nn.GELU(),
            nn.ConvTranspose2d(d_model, decoder_width, patch, stride=patch), nn.GELU(),
        )  # fmt: skip
        self.head = nn.Conv2d(decoder_width + channels, 1, 3, padding=1)

    def _over_time(self, tokens: Tensor) -> Tensor:
        """The temporal layers, made again in the backward pass where that is asked for."""
        if not self.gradient_checkpointing or not self.training:
            return self.temporal(tokens)
        for layer in self.temporal.layers:
            tokens = checkpoint(layer, tokens, use_reentrant=False)
        return tokens

    def forward(self, frames: Tensor) -> Tensor:
        batch, steps = frames.shape[:2]
        tokens = self.encode(frames.flatten(0, 1))
        width, places = tokens.shape[1], tokens.shape[2:]
        tokens = tokens.reshape(batch, steps, width, -1).permute(0, 3, 1, 2).flatten(0, 1)
        latest = self._over_time(tokens + self.time)[:, -1]
        grid = latest.reshape(batch, -1, width).transpose(1, 2).reshape(batch, width, *places)
        return self.head(torch.cat([self.decode(grid), frames[:, -1]], dim=1))[:, 0]
