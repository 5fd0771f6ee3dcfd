"""tyro: a dataclass as a command line."""

from dataclasses import dataclass

import tyro
from body import train


@dataclass
class Args:
    batch_size: int = 8
    num_workers: int = 0
    lr: float = 0.001


if __name__ == "__main__":
    args = tyro.cli(Args)
    train(args.batch_size, args.num_workers)
