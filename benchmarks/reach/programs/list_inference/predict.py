"""Label a list of reviews; one JSON line for each."""

import argparse
import json
import zlib

import torch
from step_clock import StepClock
from torch import nn


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", help="text file, one review a line")
    parser.add_argument("--output", default="preds.jsonl")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=48)
    parser.add_argument("--threshold", type=float, default=0.5)
    return parser.parse_args()


class Tagger(nn.Module):
    def __init__(self, vocabulary=4096, width=64, labels=5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, labels)

    def forward(self, ids):
        mask = ids.eq(0)
        hidden = self.encoder(self.embed(ids), src_key_padding_mask=mask)
        hidden = hidden.masked_fill(mask[..., None], 0).sum(1) / (~mask).sum(1, keepdim=True)
        return self.head(hidden)


def tokenize(texts, length):
    rows = [[1 + zlib.crc32(w.encode()) % 4095 for w in t.split()][:length] for t in texts]
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    for n, row in enumerate(rows):
        ids[n, : len(row)] = torch.tensor(row)
    return ids


@torch.inference_mode()
def main():
    args = parse_args()
    torch.manual_seed(0)
    model = Tagger().eval()
    with open(args.input) as f:
        texts = [line.strip() for line in f]
    clock = StepClock()
    with open(args.output, "w") as out:
        for start in range(0, len(texts), args.batch_size):
            batch = texts[start : start + args.batch_size]
            scores = torch.sigmoid(model(tokenize(batch, args.max_length)))
            for text, row in zip(batch, scores.tolist()):
                labels = [n for n, s in enumerate(row) if s > args.threshold]
                scores_ = [round(s, 4) for s in row]
                out.write(json.dumps({"text": text, "labels": labels, "scores": scores_}) + "\n")
            clock.tick(len(batch))


if __name__ == "__main__":
    main()
