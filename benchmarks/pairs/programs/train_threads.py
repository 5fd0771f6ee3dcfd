"""A training that computes on one thread."""

import torch
from body import Items, fit
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
WIDE = 1024
layers = [nn.Linear(8, WIDE), *(nn.Linear(WIDE, WIDE) for _ in range(4)), nn.Linear(WIDE, 1)]
loader = DataLoader(Items(load_s=0.0), batch_size=64, num_workers=0)
fit(loader, model=nn.Sequential(*layers))
