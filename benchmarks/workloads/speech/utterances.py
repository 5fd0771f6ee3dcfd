"""Speech features of various lengths as .npy files, and the data set that reads and distorts them.

An utterance is a voice whose pitch and loudness wander; how they wander is the emotion.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

VERSION = 1
"""Part of the name of a cached data set; raise it when what is generated changes."""
SHORTEST, LONGEST = 24, 400
"""Frames of an utterance."""
Item = tuple[torch.Tensor, int]


class Utterances(Dataset[Item]):
    """Features (T, F) of an utterance of T frames, and its emotion; distorted anew each time."""

    def __init__(self, folder: Path, part: slice, augment: bool) -> None:
        self.files = sorted(folder.glob("*.npy"))[part]
        self.augment = augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Item:
        file = self.files[index]
        features = np.load(file)
        if self.augment:
            seed = int(torch.randint(2**31, ()))
            features = distorted(features, np.random.default_rng(seed))
        return torch.from_numpy(features), int(file.stem.rpartition("_")[2])


def distorted(features: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another tempo, loudness and noise; a stretch of time and a band of features are masked."""
    frames, width = features.shape
    tempo = rng.uniform(0.9, 1.1)
    places = np.linspace(0, frames - 1, max(SHORTEST, round(frames * tempo)))
    below = places.astype(int)
    above = np.minimum(below + 1, frames - 1)
    part = (places - below)[:, None].astype(np.float32)
    features = features[below] * (1 - part) + features[above] * part
    features = features * np.float32(rng.uniform(0.8, 1.2))
    features += rng.normal(0, 0.1, features.shape).astype(np.float32)
    start, first = rng.integers(len(features)), rng.integers(width)
    features[start : start + rng.integers(len(features) // 5 + 1)] = 0
    features[:, first : first + rng.integers(width // 8 + 1)] = 0
    return features


def padded(items: Sequence[Item]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch: features (B, T, F) with zeros behind the shorter, lengths (B,), emotions (B,)."""
    features, emotions = zip(*items, strict=True)
    lengths = torch.tensor([len(each) for each in features])
    rows = torch.nn.utils.rnn.pad_sequence(list(features), batch_first=True)
    return rows, lengths, torch.tensor(emotions)


def dataset(root: Path, count: int, width: int, emotions: int, seed: int) -> Path:
    """Folder with one `number_emotion.npy` an utterance, most of them short; generated once."""
    folder = root / f"utterances_v{VERSION}_{count}x{width}_{emotions}_{seed}"
    if folder.exists():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(4.6, 0.7, count), SHORTEST, LONGEST).astype(int)
    for number, frames in enumerate(lengths):
        emotion = int(rng.integers(emotions))
        np.save(partial / f"{number:05d}_{emotion}.npy", voice(rng, frames, width, emotion))
    try:
        partial.rename(folder)
    except OSError:  # another run was first
        shutil.rmtree(partial)
    return folder


def voice(rng: np.random.Generator, frames: int, width: int, emotion: int) -> np.ndarray:
    """Features (frames, width): a band that wanders as fast and as far as the emotion says."""
    time = np.arange(frames, dtype=np.float32)[:, None]
    speed, reach = 0.02 * (1 + emotion % 3), 0.1 * (1 + emotion // 3)
    middle = rng.uniform(0.3, 0.7) + reach * np.sin(speed * time + rng.uniform(0, 6))
    place = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    band = np.exp(-(((place - middle) / 0.08) ** 2))
    loud = 1 + 0.5 * np.sin(2 * speed * time + rng.uniform(0, 6))
    return (band * loud + rng.normal(0, 0.2, (frames, width))).astype(np.float32)
