"""radial.sns beside the masked formulation over all pairs at once: time, memory, values.

Legend: K kernels, D features.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from measure import MIB, Task, median_seconds, record, usage, verdict

# ruff: isort: split
import torch
from torch import Tensor

from radial import sns

MU = 1e-8
Score = Callable[[Tensor, Tensor], Tensor]


def published_draw(k: int, d: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Centres U(−1, 1) and shapes with logarithms N(0, 0.1)."""
    return torch.rand(k, d, dtype=dtype) * 2.0 - 1.0, (torch.randn(k, dtype=dtype) * 0.1).exp()


def all_pairs(c: Tensor, s: Tensor) -> Tensor:
    """ψ (K, K) of every pair, the diagonal included."""
    width = torch.sqrt(s[:, None] ** 2 + s**2 + MU)
    d = torch.cdist(c, c) / (math.sqrt(c.shape[1]) * width)
    return d**2 * torch.exp(-(d**2))


def masked(c: Tensor, s: Tensor) -> Tensor:
    return all_pairs(c, s)[~torch.eye(len(c), dtype=torch.bool)].mean()


def masked_sum(c: Tensor, s: Tensor) -> Tensor:
    """The same without picking out the pairs, which torch does by a list of their indices."""
    off_diagonal = ~torch.eye(len(c), dtype=torch.bool)
    return (all_pairs(c, s) * off_diagonal).sum() / off_diagonal.sum()


def double_loop(c: Tensor, s: Tensor) -> Tensor:
    terms = []
    for i in range(len(c)):
        for j in range(len(c)):
            if i != j:
                u = (c[i] - c[j]).square().sum() / (c.shape[1] * (s[i] ** 2 + s[j] ** 2 + MU))
                terms.append(u * torch.exp(-u))
    return torch.stack(terms).mean()


FORMS: dict[str, Score] = {
    "radial.sns": sns,
    "masked cdist": masked,
    "masked cdist, by sum": masked_sum,
}


def compare(k: int, d: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time and memory at a size that the masked forms can still hold, and the goals for it."""
    c, s = published_draw(k, d)
    leaves = [c.requires_grad_(), s.requires_grad_()]
    for passes, wanted in (("forward", []), ("forward and backward", leaves)):
        tasks = {
            name: Task(forward=lambda form=form: form(c, s), leaves=wanted)
            for name, form in FORMS.items()
        }
        times = median_seconds(tasks, rounds)
        memory = {name: usage(task).peak for name, task in tasks.items()}
        ours = next(iter(FORMS))
        print(f"\nK={k} D={d}, {passes}, median of {rounds}")
        print(f"{'':22}{'ms':>9}{'/ours':>8}{'peak MiB':>11}{'/ours':>8}")
        for name in FORMS:
            print(
                f"{name:22}{1e3 * times[name]:9.1f}{times[name] / times[ours]:8.2f}"
                f"{memory[name] / MIB:11.1f}{memory[name] / memory[ours]:8.2f}"
            )
        for name in list(FORMS)[1:]:
            verdict(f"time < 1x {name}", times[ours] / times[name], most=1.0)
            verdict(f"peak memory ≤ 1/4 of {name}", memory[ours] / memory[name], most=0.25)
    return {"seconds": times, "peak": memory}  # of both passes


def many_kernels(k: int, d: int) -> None:
    """A size at which one K×K matrix would not fit."""
    c, s = published_draw(k, d)
    leaves = [c.requires_grad_(), s.requires_grad_()]
    used = usage(Task(forward=lambda: sns(c, s), leaves=leaves))
    print(f"\nK={k} D={d}, forward and backward once: {used.seconds:.1f} s")
    verdict("peak memory ≤ 2 GiB", used.peak / MIB / 1024, most=2.0)


def values() -> None:
    print("\nvalue at the published initialisation, D=2048")
    worst = 0.0
    for k in (128, 512, 2048):
        value = float(sns(*published_draw(k, 2048)))
        worst = max(worst, abs(value - 0.237))
        print(f"  K={k:<6}{value:.4f}")
    verdict("within 0.004 of 0.237", worst, most=0.004)


def differences(k: int = 24) -> None:
    print(f"\nlargest difference from a double loop in float64, K={k}")
    print(f"{'':14}{'D':>6}{'value':>12}{'gradient':>12}")
    for d in (1, 16, 2048):
        c, s = published_draw(k, d)
        exact = value_and_gradients(double_loop, c.double(), s.double())
        for dtype in (torch.float32, torch.float64):
            ours = value_and_gradients(sns, c.to(dtype), s.to(dtype))
            value, *gradients = (float((a - b).abs().max()) for a, b in zip(ours, exact))
            print(f"{dtype!s:14}{d:6}{value:12.1e}{max(gradients):12.1e}")


def value_and_gradients(form: Score, c: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    c, s = c.requires_grad_(), s.requires_grad_()
    score = form(c, s)
    return score.detach(), *torch.autograd.grad(score, (c, s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="leave out K=65,536")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    values()
    differences()
    figures = compare(4096, 2048, args.rounds)
    if not args.quick:
        many_kernels(65_536, 128)
    record("sns", figures)


if __name__ == "__main__":
    main()
