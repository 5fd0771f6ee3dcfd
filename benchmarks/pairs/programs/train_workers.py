"""A training that waits for its disk."""

from body import Items, fit
from torch.utils.data import DataLoader

fit(DataLoader(Items(), batch_size=8, num_workers=0))
