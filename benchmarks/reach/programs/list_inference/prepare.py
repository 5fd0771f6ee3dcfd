"""Made-up reviews, one a line."""

import random

rng = random.Random(4)
words = "good bad plot acting score dull bright slow quick the a of and but very film scene".split()
with open("reviews.txt", "w") as f:
    for _ in range(40_000):
        f.write(" ".join(rng.choice(words) for _ in range(rng.randint(5, 40))) + "\n")
