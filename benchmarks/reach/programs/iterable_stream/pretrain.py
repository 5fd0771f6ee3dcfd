"""Pretrain on a stream that has no end and no length."""

import random
import sys

import torch
import yaml
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, vocab, length):
        self.vocab, self.length = vocab, length

    def documents(self, seed):
        rng = random.Random(seed)
        while True:
            start, step = rng.randrange(self.vocab), rng.randrange(1, 9)
            yield [(start + n * step) % self.vocab for n in range(rng.randint(20, 200))]

    def __iter__(self):
        info = get_worker_info()
        buffer = []
        for document in self.documents(0 if info is None else info.id):
            buffer += document
            while len(buffer) > self.length:
                piece = torch.tensor(buffer[: self.length + 1])
                buffer = buffer[self.length :]
                yield piece[:-1], piece[1:]


class Decoder(nn.Module):
    def __init__(self, d_model, n_heads, n_layers, vocab_size, length):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.pos = nn.Embedding(length, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, 4 * d_model, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, vocab_size)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, ids):
        x = self.embed(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.layers(x, mask=self.mask, is_causal=True))


def main(cfg):
    torch.manual_seed(0)
    data, train = cfg["data"], cfg["train"]
    stream = Stream(cfg["model"]["vocab_size"], data["context_length"])
    loader = DataLoader(
        stream, batch_size=data["sequences_per_batch"], num_workers=data["num_loading_workers"]
    )
    model = Decoder(**cfg["model"], length=data["context_length"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=train["lr"])
    clock, many = StepClock(), train["accumulate_grad_steps"]
    for step, (ids, targets) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten()) / many
        loss.backward()
        if (step + 1) % many == 0:
            optimizer.step()
            optimizer.zero_grad()
        clock.tick(len(ids))
        if step % train["log_every"] == 0:
            print(step, loss.item() * many)
        if step >= train["max_steps"]:
            break


if __name__ == "__main__":
    main(yaml.safe_load(open(sys.argv[1])))
