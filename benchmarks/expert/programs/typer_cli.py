"""typer: a command whose loader is waited for."""

import typer
from body import predict


def main(batch_size: int = 16, num_workers: int = 0):
    predict(batch_size, num_workers)


if __name__ == "__main__":
    typer.run(main)
