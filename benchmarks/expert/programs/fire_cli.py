"""Fire: a function as a command line, which infers."""

import fire
from body import predict


def run(batch_size=1, num_workers=0):
    predict(batch_size, num_workers, load_s=0.0005)


if __name__ == "__main__":
    fire.Fire(run)
