"""jsonargparse: arguments of a function, from a YAML."""

from body import predict
from jsonargparse import CLI


def main(batch_size: int = 1, num_workers: int = 0, model: str = "small"):
    predict(batch_size, num_workers, load_s=0.0005)


if __name__ == "__main__":
    CLI(main)
