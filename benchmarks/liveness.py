"""Is the head alive? Every width, number of kernels, depth, radial function and option.

Each head beside an MLP head of the same shape on the same 256 features of an untrained ResNet
(raw ones are non-negative and correlated), without the residual path unless it says so:

  standardised  init="scaled" on standardised features
  raw           init="scaled" on raw features, as a drop-in user has it
  residual      the same with residual=True, the default of the heads
  calibrated    calibrate() on 1,024 raw features times 0.01, 1 and 100, measured on 256 new ones
  published     init="paper" on raw features

A case passes when no kernel is dead, the effective rank of the centred output is at least half
of the MLP's, and the gradient that reaches the input is within 0.1 to 10 times the MLP's. The
gradient is that of the output brought to unit length, as the losses see it; "plain" counts the
misses of the other one.

    python benchmarks/liveness.py            4,704 cases, about half an hour on two cores
    python benchmarks/liveness.py --quick    D = 64 and 2048, depth 3
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import resnet18, resnet50

from radial import RBFNProjectionHead, calibrate, diagnose
from radial.rbf.functions import RADIAL_FUNCTIONS
from radial.rbf.health import effective_rank, gradient_gain, mlp_twin

BATCH, CALIBRATION = 256, 1024
PAPER_FUNCTIONS = ("gaussian", "inverse_multiquadric", "multiquadric", "tps")
RESULTS = Path(__file__).parent / "results" / "liveness.csv"
FIELDS = ("start", "D", "K", "function", "normalize", "batch_norm", "depth", "dead", "rank",
          "mlp_rank", "gradient", "plain_gradient", "misses")  # fmt: skip


def warped(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random crop, stretch and shear of each image, with noise."""
    n = len(images)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator)

    zoom, stretch = uniform(0.6, 1.0), uniform(0.8, 1.25)
    rows = [
        torch.stack([zoom * stretch, uniform(-0.3, 0.3), uniform(-0.3, 0.3)], 1),
        torch.stack([uniform(-0.3, 0.3), zoom / stretch, uniform(-0.3, 0.3)], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, align_corners=False)
    return moved + 0.1 * torch.randn(moved.shape, generator=generator)


def raw_features(dimensions: int) -> Tensor:
    """Of an untrained ResNet in training mode on augmented digits at 64 px."""
    pixels = torch.as_tensor(load_digits().images, dtype=torch.float32)[: BATCH + CALIBRATION]
    images = F.interpolate(pixels.unsqueeze(1) / 16.0, size=64, mode="bilinear")
    images = warped(images, torch.Generator().manual_seed(0)).expand(-1, 3, -1, -1)
    net = resnet50() if dimensions >= 2048 else resnet18()
    children = list(net.children())[: 5 if dimensions == 64 else 8]  # to layer1, or to layer4
    trunk = nn.Sequential(*children, nn.AdaptiveAvgPool2d(2 if dimensions == 8192 else 1))
    with torch.no_grad():
        features = torch.cat([trunk(batch).flatten(1) for batch in images.split(BATCH)])
    assert features.shape[1] == dimensions
    return features


def starts(dimensions: int) -> Iterator[tuple[str, Tensor, Tensor | None, dict[str, object]]]:
    """(name, features to measure on, features to calibrate on, options of the head)."""
    raw = raw_features(dimensions)
    new, known = raw[:BATCH], raw[BATCH:]
    yield "standardised", (new - raw.mean(0)) / raw.std(0).clamp(min=1e-6), None, {}
    yield "raw", new, None, {}
    yield "residual", new, None, {"residual": True}
    for scale in (0.01, 1.0, 100.0):
        yield f"calibrated ×{scale:g}", scale * new, scale * known, {}
    yield "published", new, None, {"init": "paper"}


def measure(head: nn.Module, features: Tensor) -> dict[str, object]:
    report, twin = diagnose(head, features), mlp_twin(head)
    with torch.no_grad():
        output = twin(features).double()
    mlp_rank = effective_rank(output - output.mean(0))
    gradient = report.gradient_gain / report.mlp_gradient_gain
    plain = gradient_gain(head, features, unit_length=False)
    plain /= gradient_gain(twin, features, unit_length=False)
    misses = [
        name
        for name, missed in {
            "dead kernels": report.dead_kernels > 0,
            "rank": report.effective_rank < 0.5 * mlp_rank,
            "gradient": not 0.1 <= gradient <= 10.0,
        }.items()
        if missed
    ]
    return {
        "dead": report.dead_kernels,
        "rank": report.effective_rank,
        "mlp_rank": mlp_rank,
        "gradient": gradient,
        "plain_gradient": plain,
        "misses": " + ".join(misses),
    }


def cases(dimensions: int, depths: tuple[int, ...]) -> Iterator[dict[str, object]]:
    functions = tuple(RADIAL_FUNCTIONS) if dimensions <= 512 else PAPER_FUNCTIONS
    grid = list(itertools.product((128, 512), functions, (False, True), (True, False), depths))
    for start, features, known, options in starts(dimensions):
        for kernels, function, normalize, batch_norm, depth in grid:
            head = RBFNProjectionHead(
                dimensions, min(dimensions, 2048), 128, depth, num_kernels=kernels,
                radial_function=function, normalize=normalize, batch_norm=batch_norm,
                **({"residual": False} | options),
            )  # fmt: skip
            if known is not None:
                calibrate(head, known)
            yield {
                "start": start, "D": dimensions, "K": kernels, "function": function,
                "normalize": normalize, "batch_norm": batch_norm, "depth": depth,
                **measure(head, features),
            }  # fmt: skip


def summary(rows: list[dict[str, object]]) -> None:
    print(
        f"\n{'start':<18}{'cases':>6}{'pass':>6}{'dead':>6}{'rank':>6}{'gradient':>9}{'plain':>7}"
    )
    for start in dict.fromkeys(row["start"] for row in rows):
        mine = [row for row in rows if row["start"] == start]
        counts = [sum(word in row["misses"] for row in mine) for word in ("dead", "rank", "grad")]
        passed = sum(not row["misses"] for row in mine)
        plain = sum(not 0.1 <= row["plain_gradient"] <= 10.0 for row in mine)
        print(f"{start:<18}{len(mine):>6}{passed:>6}", end="")
        print(f"{counts[0]:>6}{counts[1]:>6}{counts[2]:>9}{plain:>7}")
    print("\nmisses (dead kernels, rank / MLP's, gradient / MLP's):")
    for row in rows:
        if row["misses"] and row["start"] != "published":
            print(
                f"  {row['start']}: D={row['D']} K={row['K']} {row['function']}"
                f"{' normalised' if row['normalize'] else ''}"
                f"{'' if row['batch_norm'] else ' no BatchNorm'} depth {row['depth']}: "
                f"{row['dead']:.0%}, {row['rank'] / row['mlp_rank']:.2f}, {row['gradient']:.3g}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="D = 64 and 2048, depth 3, no file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="calibrating")
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    dimensions, depths = ((64, 2048), (3,)) if options.quick else ((64, 512, 2048, 8192), (2, 3, 4))
    begin, rows = time.perf_counter(), []
    for d in dimensions:
        rows += cases(d, depths)
        print(f"D={d}: {len(rows)} cases after {time.perf_counter() - begin:.0f} s", flush=True)
        if not options.quick:
            write(rows)
    summary(rows)


def write(rows: list[dict[str, object]]) -> None:
    """All rows so far, atomically, after each width."""
    RESULTS.parent.mkdir(exist_ok=True)
    part = RESULTS.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
    os.replace(part, RESULTS)


if __name__ == "__main__":
    main()
