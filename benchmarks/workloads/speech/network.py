"""Convolutions over the features of an utterance, then an LSTM over its frames."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class SpeechEncoder(nn.Module):
    """Features (B, T, F) and lengths (B,) in, logits (B, emotions) out."""

    def __init__(self, features: int, channels: int, hidden: int, emotions: int) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv1d(features, channels, 5, 2, 2), nn.BatchNorm1d(channels), nn.ReLU(),
            nn.Conv1d(channels, 2 * channels, 5, 2, 2), nn.BatchNorm1d(2 * channels), nn.ReLU(),
        )  # fmt: skip
        self.lstm = nn.LSTM(2 * channels, hidden, batch_first=True)
        self.head = nn.Linear(hidden, emotions)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        lengths = (lengths + 3) // 4  # each convolution halves them
        frames = self.convolve(features.transpose(1, 2)).transpose(1, 2)
        packed = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        used = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        return self.head((states * used[..., None]).sum(dim=1) / lengths[:, None])
