"""`radial score` beside the plain forward passes of the same images and views.

Three networks with random weights on the same photographs, made here: a ResNet-9 at 32 px, a
ResNet-18 and a ViT-tiny at 224 px. Plain is what nobody can do without: the network applied to
batches of N images and n × q views that are there already as tensors. Scoring reads and decodes
the files, draws the views, and computes the default scores with their intervals; nothing is cached.

    python benchmarks/scoring.py            # some minutes
    python benchmarks/scoring.py --small    # a try of the script, no measurement

Times are medians of rounds that alternate. Memory is the highest resident size of a process that
does the one or the other, less what it has before.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import record, verdict

# ruff: isort: split
import numpy as np
import torch
from PIL import Image

import radial
from radial.backbones import build_backbone
from radial.scoring.settings import Settings

NETWORKS = {"resnet9-w1": 32, "resnet18": 224, "timm:vit_tiny_patch16_224": 224}
GOAL = 1.3


def photographs(folder: Path, count: int, side: int) -> None:
    """JPEG files: coarse colours under fine noise."""
    random = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = np.clip(pixels + random.integers(-12, 13, pixels.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{i:05}.jpg", quality=90)


def plain(name: str, size: int, images: int, views: int, batch: int) -> float:
    """Seconds of the forward passes of so many images and views."""
    torch.manual_seed(0)
    network = build_backbone(name, image_size=size)[0].eval()
    x = torch.randn(batch, 3, size, size)
    begin = time.perf_counter()
    with torch.no_grad():
        for start in range(0, images + views, batch):
            network(x[: min(batch, images + views - start)])
    return time.perf_counter() - begin


def scored(name: str, size: int, folder: Path, settings: Settings) -> float:
    """Seconds of a score of one network by its name."""
    begin = time.perf_counter()
    radial.score(
        f"{name}@none", sorted(folder.glob("*.jpg")), image_size=size, cache=False,
        max_images=settings.images, view_images=settings.view_images,
    )  # fmt: skip
    return time.perf_counter() - begin


def highest() -> float:
    """MiB, the highest resident size so far; getrusage would count the parent's in."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else float("nan")


def peak(arguments: list[str]) -> float:
    """MiB of a process that does one of the two, beyond what importing takes."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="64 images, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "NAME", "FOLDER"), help="for itself")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, viewed = (64, 32) if options.small else (2048, 1024)
    settings = Settings(images=images, view_images=viewed)
    passes = images, viewed * settings.views, settings.batch
    if options.one:
        what, name, folder = options.one
        before = highest()
        if what == "plain":
            plain(name, NETWORKS[name], *passes)
        else:
            scored(name, NETWORKS[name], Path(folder), settings)
        print(highest() - before)
        return 0
    figures, missed = {}, False
    with tempfile.TemporaryDirectory() as scratch:
        for size in sorted(set(NETWORKS.values())):
            folder = Path(scratch) / f"{size}px"
            folder.mkdir()
            photographs(folder, images, max(size, round(8 / 7 * size) if size >= 64 else size))
        for name, size in NETWORKS.items():
            folder = Path(scratch) / f"{size}px"
            scored(name, size, folder, settings)  # statistics of the folder are remembered
            rounds = [
                (plain(name, size, *passes), scored(name, size, folder, settings))
                for _ in range(1 if options.small else options.rounds)
            ]
            bare, whole = (statistics.median(times) for times in zip(*rounds))
            small = ["--small"] if options.small else []
            memory = [peak([*small, "--one", w, name, str(folder)]) for w in ("plain", "score")]
            figures[name] = {
                "plain_s": round(bare, 2), "score_s": round(whole, 2),
                "ratio": round(whole / bare, 3),
                "plain_mib": round(memory[0]), "score_mib": round(memory[1]),
            }  # fmt: skip
            print(f"{name} at {size} px: plain {bare:.1f} s, {memory[0]:.0f} MiB; "
                  f"score {whole:.1f} s, {memory[1]:.0f} MiB")  # fmt: skip
            verdict(f"{name}: score over plain ≤ {GOAL}", whole / bare, most=GOAL)
            missed |= whole / bare > GOAL
    if not options.small:
        record("scoring", figures)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
