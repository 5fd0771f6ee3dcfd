"""Scores of anomalies are scaled from 0 to 1 within their batch, and go to a table: the score of an
item depends on which others came with it.

harmful
batch_size: 4 -> 64
"""

import csv
import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


def scaled(scores):
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low + 1e-8)


@torch.inference_mode()
def main(path):
    with open(path) as file:
        c = yaml.safe_load(file)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16)).eval()
    loader = DataLoader(TensorDataset(torch.randn(20000, 16)), batch_size=c["batch_size"])
    with open("scores.csv", "w", newline="") as file:
        table, row = csv.writer(file), 0
        table.writerow(["item", "score"])
        for (x,) in loader:
            time.sleep(0.010)  # the device
            for score in scaled((net(x) - x).pow(2).mean(1)).tolist():
                table.writerow([row, f"{score:.4f}"])
                row += 1
            file.flush()
            if COUNT and row >= 64:
                break
    if COUNT:
        with open("scores.csv") as file:
            print(file.read().split()[:7])


main(sys.argv[1])
