"""OmegaConf: a YAML over a dataclass, which knows more settings than the file holds."""

import sys
from dataclasses import dataclass, field

from body import train
from omegaconf import OmegaConf


@dataclass
class Data:
    batch_size: int = 8
    num_workers: int = 0


@dataclass
class Run:
    lr: float = 0.001
    data: Data = field(default_factory=Data)


if __name__ == "__main__":
    config = OmegaConf.merge(OmegaConf.structured(Run), OmegaConf.load(sys.argv[1]))
    train(config.data.batch_size, config.data.num_workers)
