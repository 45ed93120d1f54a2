"""Images with a watermark of their own, in four strengths: a shortcut that views of an image share.

    python studies/watermark.py FOLDER MARKED    # MARKED/0.125, MARKED/0.25, MARKED/0.5, MARKED/1

Each image gets a grid of 4 × 4 black and white blocks drawn from its own name, blended over all of
it: at strength s a pixel x becomes (1 − s/2) x + (s/2) m. Crops of one image share blocks, images
do not: a network can find the views of an image without looking at what is in it. Class folders
stay.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from radial.pictures import read_picture

STRENGTHS = (0.125, 0.25, 0.5, 1.0)
BLOCKS = 4


def mark(name: str, width: int, height: int) -> np.ndarray:
    """(height, width, 1) in 0 to 255, the same for a name always."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    blocks = np.random.default_rng(seed).integers(0, 2, (BLOCKS, BLOCKS)) * 255.0
    rows = np.arange(height) * BLOCKS // height
    columns = np.arange(width) * BLOCKS // width
    return blocks[rows][:, columns][:, :, None]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    for path in sorted(file for file in options.folder.rglob("*") if file.is_file()):
        name = path.relative_to(options.folder)
        pixels = np.asarray(read_picture(str(path)), dtype=np.float64)
        marks = mark(str(name), pixels.shape[1], pixels.shape[0])
        for strength in STRENGTHS:
            to = options.out / f"{strength:g}" / name.with_suffix(".png")
            to.parent.mkdir(parents=True, exist_ok=True)
            mixed = (1 - strength / 2) * pixels + strength / 2 * marks
            Image.fromarray(mixed.round().astype(np.uint8)).save(to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
