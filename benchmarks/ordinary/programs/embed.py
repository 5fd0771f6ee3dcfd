"""Embed documents with a transformer; YAML into a dataclass."""

import dataclasses
import sys
import time

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset


@dataclasses.dataclass
class Config:
    batch_size: int = 1
    num_workers: int = 0
    width: int = 64
    layers: int = 2
    output: str = "embeddings.npy"


def main():
    with open(sys.argv[1]) as file:
        cfg = Config(**yaml.safe_load(file))
    passes = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    torch.manual_seed(0)
    documents = torch.randint(0, 1000, (512, 24))
    embed = torch.nn.Embedding(1000, cfg.width)
    layer = torch.nn.TransformerEncoderLayer(cfg.width, 4, 2 * cfg.width, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, cfg.layers).eval()
    loader = DataLoader(
        TensorDataset(documents), batch_size=cfg.batch_size, num_workers=cfg.num_workers
    )
    for turn in range(passes):
        began, found = time.perf_counter(), []
        with torch.inference_mode():
            for (ids,) in loader:
                found.append(encoder(embed(ids)).mean(1).numpy())
        np.save(cfg.output, np.concatenate(found))
        seconds = time.perf_counter() - began
        print(f"pass {turn}: {len(documents)} documents in {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
