"""The feature card of 25,600 × 2048 features beside one SVD of the same matrix: time and values.

Legend: N samples, D features, n images with q views each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from measure import MIB, Task, usage, verdict

# ruff: isort: split
import torch
from torch import Tensor

from radial.metrics import (
    Spectra,
    alpha_req,
    decorrelation,
    lidar,
    mst_dimension,
    nesum,
    participation_ratio,
    rankme,
    rankme_centred,
    self_cluster,
    stable_rank,
    two_nn,
    uniformity,
    w2_uniformity,
)

SPECTRAL = (
    rankme, rankme_centred, nesum, stable_rank, participation_ratio, alpha_req, decorrelation,
    w2_uniformity, self_cluster,
)  # fmt: skip


def features(n: int, d: int) -> Tensor:
    """Like those of a backbone: correlated, a decaying spectrum, cut at 0."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.arange(1.0, d + 1.0) ** -0.5
    mixing = torch.randn(d, d, generator=generator) / d**0.5
    return (torch.randn(n, d, generator=generator) * scale @ mixing * 10.0 + 0.1).relu_()


def spectral(z: Tensor) -> None:
    shared = Spectra(z)
    for score in SPECTRAL:
        score(shared)


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def best_of(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The quickest of some rounds, one after the other: what the machine can do undisturbed."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return {name: min(found) for name, found in times.items()}


def relative_difference(z: Tensor) -> float:
    values = torch.linalg.svdvals(z.double())
    p = values / values.sum() + 1e-7
    exact = float(torch.special.entr(p).sum().exp())
    return abs(rankme(z) - exact) / exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2,560 × 256 in place of the whole")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    n, d = (2560, 256) if args.quick else (25_600, 2048)
    z = features(n, d)
    threads = torch.get_num_threads()
    print(f"{n} × {d} float32, {threads} threads, best of {args.rounds}")
    times = best_of(
        {
            "torch.linalg.svdvals, float32": lambda: torch.linalg.svdvals(z),
            f"{len(SPECTRAL)} spectral scores": lambda: spectral(z),
        },
        args.rounds,
    )
    svd, ours = times.values()
    for name, value in times.items():
        print(f"  {name:32}{value:9.2f} s{value / svd:8.2f}× the SVD")
    verdict("spectral scores together ≤ 1 SVD", ours / svd, most=1.0)
    views = z[: n // 4 * 4].view(-1, 4, d)
    others = {
        "uniformity, all pairs": lambda: uniformity(z),
        f"LiDAR, {len(views)} images × 4 views": lambda: lidar(views, delta=1e-4),
        "TwoNN, all pairs": lambda: two_nn(z),
        "spanning trees of 4,096": lambda: mst_dimension(z),
    }
    for name, call in others.items():
        value = seconds(call)
        print(f"  {name:32}{value:9.2f} s{value / svd:8.2f}× the SVD")
    for name, call in {"spectral": lambda: spectral(z), **others}.items():
        peak = usage(Task(forward=call)).peak / MIB  # type: ignore[arg-type]
        print(f"  peak memory beside the features, {name}: {peak:,.0f} MiB")
        verdict("bounded: ≤ 1 GiB", peak / 1024, most=1.0)
    print("\nRankMe against float64 singular values")
    few = z[: n // 4]
    low = torch.randn(len(few), d // 4) @ torch.randn(d // 4, d)  # a wide layer after a narrow one
    cases = {"as above, a quarter of the rows": few, "of rank D/4, in float32": low}
    cases["dead features"] = few * (torch.arange(d) % 3 > 0)
    for name, case in cases.items():
        verdict(f"{name}: relative difference ≤ 1e-5", relative_difference(case), most=1e-5)


if __name__ == "__main__":
    main()
