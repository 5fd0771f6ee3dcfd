import numpy as np
from torch.utils.data import DataLoader
from torch.utils.data.sampler import SubsetRandomSampler


class BaseDataLoader(DataLoader):
    """Splits off a validation loader."""

    def __init__(self, dataset, batch_size, shuffle, validation_split, num_workers):
        self.validation_split = validation_split
        self.n_samples = len(dataset)
        order = np.random.default_rng(0).permutation(self.n_samples)
        many = int(self.n_samples * validation_split)
        self.valid_sampler = SubsetRandomSampler(order[:many]) if many else None
        sampler = SubsetRandomSampler(order[many:]) if many else None
        self.init_kwargs = dict(dataset=dataset, batch_size=batch_size, num_workers=num_workers)
        super().__init__(sampler=sampler, shuffle=shuffle and sampler is None, **self.init_kwargs)

    def split_validation(self):
        if self.valid_sampler is None:
            return None
        return DataLoader(sampler=self.valid_sampler, **self.init_kwargs)
