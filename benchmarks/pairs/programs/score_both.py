"""An inference that waits for its disk, and launches for a few items."""

from body import Items, score
from torch.utils.data import DataLoader

BATCH_SIZE = 4
NUM_WORKERS = 0

score(DataLoader(Items(), batch_size=BATCH_SIZE, num_workers=NUM_WORKERS))
