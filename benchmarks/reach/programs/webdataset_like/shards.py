"""A pipeline of generators over tar files: shuffled, decoded, batched inside."""

import glob
import io
import random
import tarfile

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset, get_worker_info


class WebDataset(IterableDataset):
    def __init__(self, pattern):
        self.urls = sorted(glob.glob(pattern))
        self.stages = []

    def compose(self, stage):
        self.stages.append(stage)
        return self

    def shuffle(self, size):
        def stage(samples):
            buffer = []
            for sample in samples:
                buffer.append(sample)
                if len(buffer) >= size:
                    yield buffer.pop(random.randrange(len(buffer)))
            yield from buffer

        return self.compose(stage)

    def decode(self):
        def stage(samples):
            for sample in samples:
                image = Image.open(io.BytesIO(sample["png"])).resize((40, 40), Image.BILINEAR)
                pixels = torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1)
                yield pixels, int(sample["cls"])

        return self.compose(stage)

    def batched(self, size):
        def stage(samples):
            batch = []
            for sample in samples:
                batch.append(sample)
                if len(batch) == size:
                    yield torch.stack([x for x, _ in batch]), torch.tensor([y for _, y in batch])
                    batch = []

        return self.compose(stage)

    def __iter__(self):
        info = get_worker_info()
        urls = self.urls if info is None else self.urls[info.id :: info.num_workers]
        samples = self.read(urls)
        for stage in self.stages:
            samples = stage(samples)
        return iter(samples)

    @staticmethod
    def read(urls):
        for url in urls:
            with tarfile.open(url) as tar:
                sample, key = {}, None
                for member in tar:
                    name, _, suffix = member.name.partition(".")
                    if key not in (None, name):
                        yield sample
                        sample = {}
                    key = name
                    sample[suffix] = tar.extractfile(member).read()
                if sample:
                    yield sample
