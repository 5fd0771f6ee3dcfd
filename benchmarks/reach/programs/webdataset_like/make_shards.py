"""Images and labels as members of tar files."""

import io
import os
import tarfile

import numpy as np
from PIL import Image

os.makedirs("shards", exist_ok=True)
rng = np.random.default_rng(0)
for shard in range(6):
    with tarfile.open(f"shards/train-{shard:04d}.tar", "w") as tar:
        for n in range(250):
            label = int(rng.integers(5))
            pixels = rng.integers(0, 90, (64, 64, 3)) + 30 * label
            data = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(data, "PNG")
            for suffix, content in (("png", data.getvalue()), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{shard:04d}{n:05d}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
