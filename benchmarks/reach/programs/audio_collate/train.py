"""Keyword spotting on clips of all lengths."""

import sys
import tomllib

import torch
from step_clock import StepClock
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, rate, classes, n=6000):
        self.rate, self.classes, self.n = rate, classes, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        label = index % self.classes
        seconds = 0.3 + 0.7 * torch.rand(1, generator=g).item()
        t = torch.arange(int(seconds * self.rate)) / self.rate
        wave = torch.sin(2 * torch.pi * (200 + 150 * label) * t)
        return wave + 0.1 * torch.randn(len(t), generator=g), label


def collate(batch):
    batch.sort(key=lambda pair: -len(pair[0]))
    waves = pad_sequence([wave for wave, _ in batch], batch_first=True)
    lengths = torch.tensor([len(wave) for wave, _ in batch])
    return waves, lengths, torch.tensor([label for _, label in batch])


class Spotter(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.n_fft, self.hop = features["n_fft"], features["hop_length"]
        self.rnn = nn.GRU(self.n_fft // 2 + 1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, waves, lengths):
        window = torch.hann_window(self.n_fft)
        spec = torch.stft(waves, self.n_fft, self.hop, window=window, return_complex=True)
        frames = (spec.abs() + 1e-5).log().transpose(1, 2)
        counts = lengths // self.hop + 1
        packed = pack_padded_sequence(frames, counts, batch_first=True)
        return self.head(self.rnn(packed)[1][0])


def main(path):
    with open(path, "rb") as f:
        hp = tomllib.load(f)
    torch.manual_seed(0)
    training = hp["training"]
    loader = DataLoader(
        Clips(hp["features"]["sample_rate"], hp["model"]["classes"]),
        batch_size=training["clips_per_step"],
        shuffle=True,
        num_workers=training["loader_procs"],
        collate_fn=collate,
    )
    model = Spotter(hp["features"], **hp["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=training["learning_rate"])
    clock = StepClock()
    for epoch in range(training["epochs"]):
        for waves, lengths, labels in loader:
            loss = nn.functional.cross_entropy(model(waves, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            clock.tick(len(labels))
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
