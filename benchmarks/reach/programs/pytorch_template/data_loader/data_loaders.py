import numpy as np
import torch
from base import BaseDataLoader
from PIL import Image, ImageDraw
from torch.utils.data import Dataset


class Shapes(Dataset):
    """Polygons of three to twelve corners, drawn and turned anew each time."""

    def __init__(self, data_dir, n=6000):
        self.data_dir, self.n = data_dir, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        corners = 3 + index % 10
        image = Image.new("L", (56, 56))
        angles = rng.uniform(0, 6) + np.arange(corners) * 2 * np.pi / corners
        points = [(28 + 22 * np.cos(a), 28 + 22 * np.sin(a)) for a in angles]
        ImageDraw.Draw(image).polygon(points, fill=200)
        image = image.rotate(rng.uniform(-20, 20), Image.BILINEAR).resize((28, 28), Image.BICUBIC)
        return torch.from_numpy(np.asarray(image, np.float32) / 255)[None], index % 10


class ShapesDataLoader(BaseDataLoader):
    def __init__(self, data_dir, batch_size, shuffle=True, validation_split=0.0, num_workers=1):
        super().__init__(Shapes(data_dir), batch_size, shuffle, validation_split, num_workers)
