"""A training with fewer workers than its slow disk could keep busy; they sleep."""

from body import Items, fit
from torch.utils.data import DataLoader

LOADER = dict(batch_size=8, num_workers=2)
fit(DataLoader(Items(load_s=0.008), **LOADER))
