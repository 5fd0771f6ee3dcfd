"""Train a language model; everything is a flag."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, count, length):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.003)  # a remote store
        return torch.arange(index, index + self.length + 1) % 256


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.core = torch.nn.GRU(width, width, batch_first=True)
        self.head = torch.nn.Linear(width, 256)

    def forward(self, ids):
        return self.head(self.core(self.embed(ids))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=1000)
    args = parser.parse_args()
    loader = DataLoader(
        Lines(1024, args.seq_len), args.batch_size, shuffle=True, num_workers=args.num_workers
    )
    model = Model(64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        began, seen = time.perf_counter(), 0
        for ids in loader:
            logits = model(ids[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen += len(ids)
        print(f"epoch {epoch}: {seen} lines in {time.perf_counter() - began:.3f} s", flush=True)


if __name__ == "__main__":
    main()
