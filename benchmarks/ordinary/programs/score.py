"""Score texts with a small classifier and write JSON lines."""

import argparse
import json
import time

import torch
import yaml


class Classifier(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = torch.nn.EmbeddingBag(5000, width)
        self.body = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(depth))
        self.head = torch.nn.Linear(width, 2)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.body:
            x = x + torch.nn.functional.gelu(layer(x))
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--cfg", required=True)
    parser.add_argument("--passes", type=int, default=1000)
    args = parser.parse_args()
    cfg = yaml.safe_load(open(args.cfg))
    torch.manual_seed(0)
    texts = torch.randint(0, 5000, (4096, 40))
    model = Classifier(**cfg["model"]).eval()
    size = cfg["eval"]["batch_size"]
    for turn in range(args.passes):
        began = time.perf_counter()
        with torch.no_grad(), open("scores.jsonl", "w") as out:
            for start in range(0, len(texts), size):
                for row in model(texts[start : start + size]).softmax(1).tolist():
                    out.write(json.dumps({"positive": row[1]}) + "\n")
        seconds = time.perf_counter() - began
        print(f"pass {turn}: {len(texts)} texts in {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
