"""Train an encoder on a sorting task: python train.py --deepspeed --deepspeed_config ds.json"""

import argparse

import engine as deepspeed
import torch
from step_clock import StepClock
from torch import nn


class Sorting(torch.utils.data.Dataset):
    def __init__(self, n=40000, length=24):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        row = torch.randint(64, (self.length,), generator=torch.Generator().manual_seed(index))
        return row, row.sort().values


class Encoder(nn.Module):
    def __init__(self, hidden, layers, length=24):
        super().__init__()
        self.embed, self.pos = nn.Embedding(64, hidden), nn.Parameter(torch.zeros(length, hidden))
        block = nn.TransformerEncoderLayer(hidden, 4, 2 * hidden, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(hidden, 64)

    def forward(self, rows):
        return self.head(self.encoder(self.embed(rows) + self.pos))


def add_argument():
    parser = argparse.ArgumentParser(description="sorting")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("-e", "--epochs", default=30, type=int)
    parser.add_argument("--hidden_size", default=64, type=int)
    parser.add_argument("--num_hidden_layers", default=2, type=int)
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--deepspeed_config", default=None, type=str)
    return parser.parse_args()


def main():
    args = add_argument()
    torch.manual_seed(0)
    model = Encoder(args.hidden_size, args.num_hidden_layers)
    model_engine, _, loader, _ = deepspeed.initialize(model, args.deepspeed_config, Sorting())
    clock = StepClock()
    for epoch in range(args.epochs):
        for i, (rows, wanted) in enumerate(loader):
            outputs = model_engine(rows)
            loss = nn.functional.cross_entropy(outputs.flatten(0, 1), wanted.flatten())
            model_engine.backward(loss)
            model_engine.step()
            clock.tick(len(rows))
            if i % 400 == 399:
                print(f"[{epoch}, {i + 1:5d}] loss: {loss.item():.3f}")


if __name__ == "__main__":
    main()
