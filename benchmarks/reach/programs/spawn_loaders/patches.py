import torch


class Patches(torch.utils.data.Dataset):
    """Texture patches, smoothed."""

    def __init__(self, classes, n=9000):
        self.classes, self.n = classes, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        label = index % self.classes
        noise = torch.rand(1, 3, 40, 40, generator=torch.Generator().manual_seed(index))
        for _ in range(label):
            noise = torch.nn.functional.avg_pool2d(noise, 3, 1, 1)
        return noise[0], label
