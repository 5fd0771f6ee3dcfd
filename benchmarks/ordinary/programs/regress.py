"""Fine-tune a regressor on windows of a series; JSON with nested sections."""

import json
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, random_split


class Windows(Dataset):
    def __init__(self, length):
        self.length = length
        self.series = torch.sin(torch.arange(4096) / 20)

    def __len__(self):
        return 1200

    def __getitem__(self, index):
        time.sleep(0.003)  # a database
        window = self.series[index : index + self.length]
        return window, self.series[index + self.length]


def main():
    with open(sys.argv[1]) as file:
        cfg = json.load(file)
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else cfg["training"]["epochs"]
    torch.manual_seed(cfg["seed"])
    train, val = random_split(Windows(cfg["data"]["window"]), (1000, 200))
    loading = cfg["data"]["loader"]
    loader = DataLoader(train, shuffle=True, **loading)
    model = torch.nn.Sequential(
        torch.nn.Linear(cfg["data"]["window"], 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["training"]["learning_rate"])
    for epoch in range(epochs):
        model.train()
        began, seen = time.perf_counter(), 0
        for windows, targets in loader:
            loss = (model(windows)[:, 0] - targets).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += len(windows)
        print(f"epoch {epoch}: {seen} windows in {time.perf_counter() - began:.3f} s", flush=True)
        model.eval()
        with torch.no_grad():
            errors = [(model(x)[:, 0] - y).abs().mean() for x, y in DataLoader(val, **loading)]
        print(f"  validation error {torch.stack(errors).mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
