"""RBFLayer beside an MLP block of the same shape: time, allocated memory, accuracy.

Legend: B samples, D features in and out, K kernels or hidden units.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from measure import MIB, Task, Usage, median_seconds, record, seconds, usage, verdict

# ruff: isort: split
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial import RBFLayer
from radial.rbf.functions import squared_euclidean

MAIN = (256, 2048, 512)
SHAPES = (MAIN, (512, 512, 128), (2048, 2048, 128))
OURS = ("RBFLayer", "RBFLayer, normalised")
BROADCAST_LIMIT = 6e9  # bytes
BROADCAST_TENSORS = 3  # of B×K×D floats, what its backward pass holds at once


def cdist_layer(layer: RBFLayer, x: Tensor) -> Tensor:
    """The equation of the layer with torch's own distance."""
    return F.linear(
        torch.exp(-((torch.cdist(x, layer.centers) * layer.shapes) ** 2)), layer.weights
    )


def broadcast_layer(layer: RBFLayer, x: Tensor) -> Tensor:
    """The equation as it is written: B×K×D differences, B×D×K weighted activations."""
    r = (x[:, None, :] - layer.centers).norm(dim=-1)
    phi = torch.exp(-((r * layer.shapes) ** 2))
    return (phi[:, None, :] * layer.weights).sum(-1)


def candidates(b: int, d: int, k: int) -> dict[str, Task]:
    x, cotangent = torch.randn(b, d, requires_grad=True), torch.randn(b, d)
    mlp = nn.Sequential(nn.Linear(d, k), nn.ReLU(), nn.Linear(k, d))
    layer, normalised = RBFLayer(d, k, d), RBFLayer(d, k, d, normalize=True)

    def task(module: nn.Module, forward: Callable[[], Tensor]) -> Task:
        return Task(forward=forward, leaves=[x, *module.parameters()], cotangent=cotangent)

    return {
        "MLP": task(mlp, lambda: mlp(x)),
        "RBFLayer": task(layer, lambda: layer(x)),
        "RBFLayer, normalised": task(normalised, lambda: normalised(x)),
        "torch.cdist": task(layer, lambda: cdist_layer(layer, x)),
        "broadcast": task(layer, lambda: broadcast_layer(layer, x)),
    }


def compare(shape: tuple[int, int, int], rounds: int) -> tuple[dict[str, float], dict[str, Usage]]:
    """Seconds and memory of every candidate at one shape, printed as a table."""
    b, d, k = shape
    tasks = candidates(b, d, k)
    broadcast = tasks.pop("broadcast")
    times = median_seconds(tasks, rounds)
    memory = {name: usage(task) for name, task in tasks.items()}
    needed = BROADCAST_TENSORS * 4 * b * k * d
    if needed <= BROADCAST_LIMIT:
        # It takes seconds, so one run each: no warm-up changes that figure.
        times["broadcast"], memory["broadcast"] = seconds(broadcast), usage(broadcast)

    print(f"\nB={b} D={d} K={k}, forward and backward, median of {rounds}")
    print(f"{'':22}{'ms':>9}{'/MLP':>8}{'peak MiB':>11}{'/MLP':>8}{'total MiB':>11}{'/MLP':>8}")
    base = memory["MLP"]
    for name, used in memory.items():
        print(
            f"{name:22}{1e3 * times[name]:9.2f}{times[name] / times['MLP']:8.2f}"
            f"{used.peak / MIB:11.1f}{used.peak / base.peak:8.2f}"
            f"{used.total / MIB:11.1f}{used.total / base.total:8.2f}"
        )
    if needed > BROADCAST_LIMIT:
        print(f"{'broadcast':22}  skipped: needs about {needed / 1e9:.1f} GB")
    return times, memory


def agreement() -> None:
    """The candidates that claim to be one layer give the same output and gradients."""
    tasks = candidates(32, 64, 16)
    results = {}
    for name in ("broadcast", "RBFLayer", "torch.cdist"):
        task = tasks[name]
        results[name] = [
            task.forward().detach(),
            *torch.autograd.grad(task.forward(), task.leaves, task.cotangent),
        ]
    print(
        "\nlargest difference from broadcast in output and gradients, relative to the largest entry"
    )
    for name in ("RBFLayer", "torch.cdist"):
        pairs = zip(results[name], results["broadcast"])
        worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
        print(f"  {name:14}{worst:.1e}")


def relative_error(squared: Tensor, exact: Tensor) -> float:
    return float(((squared.double() - exact) / exact).abs().max())


def brute_force(x: Tensor, c: Tensor) -> Tensor:
    x, c = x.double(), c.double()
    return torch.stack([(row - c).square().sum(1) for row in x])


def unshifted(x: Tensor, c: Tensor) -> Tensor:
    norms = x.square().sum(1, keepdim=True) + c.square().sum(1)
    return (norms - 2.0 * x @ c.T).clamp(min=0.0)


def accuracy(b: int, d: int, k: int) -> float:
    """Print the errors of squared distances; return ours on a cloud around the origin."""
    print(f"\nsquared distances, B={b} D={d} K={k}: largest relative error against float64")
    print(f"{'added to every feature':>24}{'ours':>12}{'torch.cdist':>14}{'unshifted':>12}")
    x, c = torch.randn(b, d), torch.randn(k, d)
    ours = {}
    for shift in (0.0, 1e1, 1e2, 1e3, 1e4, 1e5):
        far_x, far_c = x + shift, c + shift  # rounded here, so that all see the same input
        exact = brute_force(far_x, far_c)
        ours[shift] = relative_error(squared_euclidean(far_x, far_c), exact)
        theirs = relative_error(torch.cdist(far_x, far_c).square(), exact)
        plain = relative_error(unshifted(far_x, far_c), exact)
        print(f"{shift:24.0e}{ours[shift]:12.1e}{theirs:14.1e}{plain:12.1e}")
    return ours[0.0]


def shape_argument(text: str) -> tuple[int, int, int]:
    b, d, k = map(int, text.split("/"))
    return b, d, k


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shapes", type=shape_argument, nargs="+", default=SHAPES, metavar="B/D/K")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    agreement()
    error = accuracy(*MAIN)
    figures = {}
    for shape in args.shapes:
        times, memory = compare(shape, args.rounds)
        peaks = {name: used.peak for name, used in memory.items()}
        figures["/".join(map(str, shape))] = {"seconds": times, "peak": peaks}

    print("\ngoals")
    verdict("relative error of squared distances ≤ 1e-5", error, most=1e-5)
    for shape, found in figures.items():
        times, peaks = found["seconds"], found["peak"]
        for name in OURS:
            verdict(f"time ≤ 1.1x MLP, {name} at {shape}", times[name] / times["MLP"], most=1.1)
            memory = peaks[name] / peaks["MLP"]
            verdict(f"peak memory ≤ 1.2x MLP, {name} at {shape}", memory, most=1.2)
        if "broadcast" in times and shape == "/".join(map(str, MAIN)):
            speed_up = times["broadcast"] / max(times[name] for name in OURS)
            verdict(f"at least 100x faster than broadcast at {shape}", speed_up, least=100.0)
    if args.shapes == SHAPES:
        record("rbf_layer", figures)


if __name__ == "__main__":
    main()
