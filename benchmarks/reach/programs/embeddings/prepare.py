"""Made-up titles."""

import csv
import random

rng = random.Random(2)
words = ["".join(rng.choice("aeioubcdfg") for _ in range(5)) for _ in range(2000)]
with open("titles.csv", "w", newline="") as f:
    out = csv.writer(f)
    out.writerow(["id", "title"])
    for n in range(400_000):
        out.writerow([n, " ".join(rng.choice(words) for _ in range(rng.randint(3, 12)))])
