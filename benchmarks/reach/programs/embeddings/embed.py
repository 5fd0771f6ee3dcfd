"""Embed the rows of a CSV; the vectors go to one .npy, ids beside them."""

import argparse
import csv
import zlib

import numpy as np
import torch
from step_clock import StepClock
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(5000, 64, mode="mean")
        self.net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, ids, offsets):
        return nn.functional.normalize(self.net(self.embedding(ids, offsets)), dim=-1)


def batches(path, size):
    with open(path, newline="") as f:
        rows = []
        for row in csv.DictReader(f):
            rows.append(row)
            if len(rows) == size:
                yield rows
                rows = []
        if rows:
            yield rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("csv")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--out", default="vectors.npy")
    args = parser.parse_args()
    torch.manual_seed(0)
    encoder, clock = Encoder().eval(), StepClock()
    vectors, ids = [], []
    for rows in batches(args.csv, args.batch_size):
        words = [[zlib.crc32(w.encode()) % 5000 for w in row["title"].split()] for row in rows]
        offsets = torch.tensor([0, *map(len, words[:-1])]).cumsum(0)
        with torch.no_grad():
            out = encoder(torch.tensor([w for each in words for w in each]), offsets)
        vectors.append(out.numpy())
        ids += [row["id"] for row in rows]
        clock.tick(len(rows))
    np.save(args.out, np.concatenate(vectors))
    with open(args.out + ".ids.txt", "w") as f:
        f.write("\n".join(ids))


if __name__ == "__main__":
    main()
