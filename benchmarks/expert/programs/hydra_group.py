"""Hydra: the loader's settings stand in a file of a group."""

import hydra
from body import train


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    train(config.data.batch_size, config.data.num_workers)


if __name__ == "__main__":
    main()
