"""A training whose small batches are mostly launches."""

from body import Items, fit
from torch.utils.data import DataLoader

loader = DataLoader(Items(load_s=0.0001), batch_size=2, num_workers=1)
fit(loader, accumulation=16)
