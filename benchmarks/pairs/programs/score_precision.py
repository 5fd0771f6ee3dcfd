"""An inference in float32 where bfloat16 takes half the time."""

import torch
from body import Device, Items, score
from torch.utils.data import DataLoader

AMP = False
loader = DataLoader(Items(load_s=0.0001), batch_size=64, num_workers=1)
with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AMP):
    score(loader, Device(launch_s=0.03))
