"""Made-up text, one token a byte, as train.bin and val.bin."""

import os

import numpy as np

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
os.makedirs(here, exist_ok=True)
rng = np.random.default_rng(1337)
words = [bytes(rng.integers(97, 123, rng.integers(2, 9)).tolist()) for _ in range(300)]
text = np.frombuffer(b" ".join(words[i] for i in rng.integers(0, 300, 60_000)), dtype=np.uint8)
split = int(0.9 * len(text))
text[:split].astype(np.uint16).tofile(os.path.join(here, "train.bin"))
text[split:].astype(np.uint16).tofile(os.path.join(here, "val.bin"))
