"""A training of short epochs, each of which starts its workers anew."""

from body import ITEMS, Items, fit
from torch.utils.data import DataLoader

loader = DataLoader(
    Items(load_s=0.001, count=160), batch_size=8, num_workers=2, persistent_workers=False
)
fit(loader, passes=ITEMS // 160)
