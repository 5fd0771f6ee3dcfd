import os
import random

import torch


class Dictionary:
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]


class Corpus:
    def __init__(self, path):
        self.dictionary = Dictionary()
        self.train = self.tokenize(os.path.join(path, "train.txt"))
        self.valid = self.tokenize(os.path.join(path, "valid.txt"))

    def tokenize(self, path):
        ids = []
        with open(path, encoding="utf8") as f:
            for line in f:
                ids += [self.dictionary.add_word(word) for word in [*line.split(), "<eos>"]]
        return torch.tensor(ids, dtype=torch.int64)


def make_text(path):
    rng = random.Random(0)
    words = [
        "".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 7))) for _ in range(800)
    ]
    os.makedirs(path, exist_ok=True)
    for name, lines in (("train.txt", 12000), ("valid.txt", 600)):
        with open(os.path.join(path, name), "w", encoding="utf8") as f:
            for _ in range(lines):
                f.write(" ".join(rng.choice(words) for _ in range(rng.randint(8, 25))) + "\n")


if __name__ == "__main__":
    make_text("corpus")
