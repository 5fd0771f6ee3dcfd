"""An inference whose batches of one are mostly launches."""

from body import Items, score
from torch.utils.data import DataLoader

score(DataLoader(Items(load_s=0.0001), batch_size=1))
