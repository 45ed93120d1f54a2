"""Label-free scores of features beside a singular value decomposition: time, memory, values.

Legend: N samples, D features.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from measure import MIB, Task, median_seconds, record, usage, verdict

# ruff: isort: split
import torch
from torch import Tensor

from radial.metrics.compute import Sample, kernel_scores
from radial.metrics.dimension import two_nn
from radial.metrics.hypersphere import self_cluster, uniformity, w2_uniformity
from radial.metrics.registry import SCORES
from radial.metrics.spectra import (
    Spectra,
    alpha_req,
    decorrelation,
    nesum,
    participation_ratio,
    rankme,
    rankme_centred,
    stable_rank,
)
from radial.processes import keep_freed_memory
from radial.rbf.kernels import Kernels
from radial.scoring.settings import Settings

SPECTRAL: dict[str, Callable[[Spectra], float]] = {
    "rankme": rankme,
    "rankme_centred": rankme_centred,
    "nesum": nesum,
    "stable_rank": stable_rank,
    "participation_ratio": participation_ratio,
    "alpha_req": lambda spectra: alpha_req(spectra).alpha,
    "decorrelation": decorrelation,
    "w2_uniformity": w2_uniformity,
    "self_cluster": self_cluster,
}


def all_scores(z: Tensor) -> Tensor:
    spectra = Spectra(z)
    return torch.tensor([score(spectra) for score in SPECTRAL.values()], dtype=torch.float64)


def power_law(n: int, d: int, alpha: float, mean: float = 0.0) -> Tensor:
    """Covariance with eigenvalues j^−α, in float32."""
    scales = torch.arange(1, d + 1) ** (-alpha / 2)
    return torch.randn(n, d) * scales @ torch.linalg.qr(torch.randn(d, d)).Q + mean


def like_a_backbone(n: int, d: int) -> Tensor:
    """Not negative, decaying spectrum, a mean, a few features that are always 0."""
    z = (10.0 * power_law(n, d, 1.0) + 0.1).relu()
    z[:, :3] = 0.0
    return z


def linear_map(n: int, d: int, mean: float = 0.0) -> Tensor:
    """Three quarters of the singular values are rounding."""
    return torch.randn(n, d // 4) @ torch.randn(d // 4, d) / math.sqrt(d / 4) + mean


FEATURES: dict[str, Callable[[int, int], Tensor]] = {
    "isotropic": torch.randn,
    "like a backbone": like_a_backbone,
    "power law, α = 1": lambda n, d: power_law(n, d, 1.0),
    "power law, α = 1.8": lambda n, d: power_law(n, d, 1.8),
    "power law, α = 1.8, mean 100": lambda n, d: power_law(n, d, 1.8, 100.0),
    "power law, α = 4": lambda n, d: power_law(n, d, 4.0),
    "linear map from D/4": linear_map,
    "linear map from D/4, mean 100": lambda n, d: linear_map(n, d, 100.0),
}


def values(n: int, d: int) -> None:
    """RankMe beside that of float64 singular values."""
    print(f"\nrelative difference from float64 singular values, N={n} D={d}")
    print(f"{'':32}{'RankMe':>10}{'difference':>12}{'centred':>10}{'difference':>12}")
    worst = 0.0
    for name, make in FEATURES.items():
        z = make(n, d)
        spectra, exact = Spectra(z), z.double()
        row = f"{name:32}"
        for score, x in ((rankme, exact), (rankme_centred, exact - exact.mean(0))):
            sigma = torch.linalg.svdvals(x)
            p = sigma / sigma.sum() + 1e-7
            reference = math.exp(float(-(p * p.log()).sum()))
            difference = score(spectra) / reference - 1.0
            worst = max(worst, abs(difference))
            row += f"{reference:10.3f}{difference:12.1e}"
        print(row, flush=True)
    verdict("within 1e-5", worst, most=1e-5)


def spectral(n: int, d: int, rounds: int) -> dict[str, float]:
    """All spectral scores beside one decomposition."""
    z = like_a_backbone(n, d)
    tasks = {
        "nine spectral scores": Task(forward=lambda: all_scores(z)),
        "svdvals, float32": Task(forward=lambda: torch.linalg.svdvals(z)),
        "svdvals, float64": Task(forward=lambda: torch.linalg.svdvals(z.double())),
    }
    times = median_seconds(tasks, rounds)
    memory = {name: usage(task).peak for name, task in tasks.items()}
    ours, single, double = tasks
    print(f"\nfeatures like a backbone's, N={n} D={d}, median of {rounds}")
    print(f"{'':24}{'s':>9}{'/ours':>8}{'peak MiB':>11}")
    for name in tasks:
        ratio = times[name] / times[ours]
        print(f"{name:24}{times[name]:9.2f}{ratio:8.2f}{memory[name] / MIB:11.0f}")
    verdict("time ≤ 1x svdvals of the same float32 matrix", times[ours] / times[single], most=1.0)
    verdict("time ≤ 1x svdvals in float64", times[ours] / times[double], most=1.0)
    verdict("peak memory beside the features < 1 GiB", memory[ours] / MIB / 1024, most=1.0)
    print("  " + ", ".join(f"{name} {value:.5g}" for name, value in zip(SPECTRAL, all_scores(z))))
    return {"time": times[ours] / times[single], "peak": memory[ours] / memory[single]}


def ill_conditioned(n: int, d: int) -> None:
    """What the second look at small eigenvalues costs."""
    z = linear_map(n, d)
    used = usage(Task(forward=lambda: all_scores(z)))
    decomposition = usage(Task(forward=lambda: torch.linalg.svdvals(z.double())))
    print(f"\nlinear map from D/4, N={n} D={d}, once")
    print(f"{'nine spectral scores':24}{used.seconds:9.2f} s{used.peak / MIB:9.0f} MiB")
    seconds, peak = decomposition.seconds, decomposition.peak / MIB
    print(f"{'svdvals, float64':24}{seconds:9.2f} s{peak:9.0f} MiB")
    verdict("peak memory beside the features < 1 GiB", used.peak / MIB / 1024, most=1.0)


def rivals(n: int, q: int, d: int, rounds: int) -> dict[str, Any]:
    """Each score of views and turned images beside LiDAR, in the same round, nothing shared."""
    images = like_a_backbone(n, d)
    views = images[:, None] + 0.5 * images.std() * torch.randn(n, q, d)
    held = {"features": images, "views": views, "start_views": views + torch.randn(views.shape)}
    held["recipes"] = views[:512, None].expand(-1, 3, -1, -1)
    held["rotations"] = images[:512, None] + 0.5 * images.std() * torch.randn(min(n, 512), 4, d)
    needed = ("views", "recipes", "start_views", "rotations")
    names = [name for name, info in SCORES.items() if info.needs in needed]
    names += ["cluster_learnability", "two_nn"]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        seconds = {}
        for name in names:
            start = time.perf_counter()
            SCORES[name].fn(Sample(**held))
            seconds[name] = time.perf_counter() - start
        for name in names:
            ratios[name].append(seconds[name] / seconds["lidar"])
    medians = {name: statistics.median(found) for name, found in ratios.items()}
    print(f"\nrivals beside LiDAR, n={n} q={q} D={d}, median of {rounds}: time / LiDAR's")
    for name, ratio in medians.items():
        print(f"{name:24}{ratio:9.2f}")
    return {"n": n, "q": q, "d": d, "time beside lidar": medians}


def together(n: int, view_images: int, d: int, rounds: int) -> dict[str, Any]:
    """All scores of features and views once, beside one decomposition in the same round."""
    z = like_a_backbone(n, d)
    views = z[:view_images, None] + 0.5 * z.std() * torch.randn(view_images, 4, d)
    names = [name for name, info in SCORES.items() if info.needs in ("features", "views")]
    seconds: dict[str, list[float]] = {name: [] for name in ("svdvals, float32", *names)}
    ratios = []
    for _ in range(rounds):
        sample = Sample(features=z, views=views)
        tasks = {"svdvals, float32": lambda: torch.linalg.svdvals(z)}
        tasks |= {name: functools.partial(SCORES[name].fn, sample) for name in names}
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
        ratios.append(sum(seconds[name][-1] for name in names) / seconds["svdvals, float32"][-1])
    print(f"\nall scores of features and views, N={n} D={d}, n={view_images} q=4, {rounds} rounds")
    print("(what several share is counted with the first of them)")
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, value in medians.items():
        print(f"{name:24}{value:9.2f} s")
    print(f"ratios of the rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    ratio = statistics.median(ratios)
    verdict(f"all scores ≤ 2x one svdvals, views of {view_images:,} images", ratio, most=2.0)
    few = z[: min(n, 4096)]
    difference = abs(uniformity(few) - uniformity(few.double()))
    verdict("float32 products in uniformity good to 1e-6", difference, most=1e-6)
    difference = abs(two_nn(few) / two_nn(few.double()) - 1.0)
    verdict("float32 products in TwoNN good to 1e-9", difference, most=1e-9)
    shape = {"n": n, "view_images": view_images, "d": d}
    return {**shape, "seconds": medians, "ratio": ratio, "ratios": ratios}


def kernels_alone(k: int, d: int, rounds: int) -> dict[str, Any]:
    """The five scores that kernels alone give, as a run records them before its first step."""
    shapes = torch.rand(k) + 0.5
    found = Kernels(
        name="layers.2", centers=torch.randn(k, d), shapes=shapes, widths=1 / (2**0.5 * shapes)
    )
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        kernel_scores(found)
        taken.append(time.perf_counter() - start)
    print(f"\nkernels alone, K={k} D={d}: {statistics.median(taken):.2f} s")
    verdict("seconds", statistics.median(taken), most=1.0)
    return {"k": k, "d": d, "seconds": statistics.median(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="N=6,400 D=512 for 25,600 and 2,048")
    args = parser.parse_args()
    keep_freed_memory()  # as the CLI does, for both sides
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    n, d = (6_400, 512) if args.quick else (25_600, 2_048)
    values(4_096, 256)
    if not args.quick:
        values(16_384, 1_024)  # large enough for products in float32
    in_spectra = spectral(n, d, args.rounds)
    ill_conditioned(n, d)
    figures = {
        "spectral": in_spectra,
        "together": together(n, n // 4, d, args.rounds),
        "together, default views": together(n, Settings().view_images, d, args.rounds),
        "kernels alone": kernels_alone(d, d, args.rounds),
        "rivals": rivals(1_024, 4, 512, 7 * args.rounds),  # short, so noisy
    }
    if not args.quick:
        record("metrics", figures)


if __name__ == "__main__":
    main()
