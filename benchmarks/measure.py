"""What the benchmarks share: interleaved timing, allocated memory, and the verdict on a goal."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # read when torch is loaded: a quiet profiler

import torch
from torch import Tensor

MIB = 2.0**20


@dataclass(frozen=True, kw_only=True)
class Task:
    """A forward pass and, if there are leaves, the backward pass that fills their gradients."""

    forward: Callable[[], Tensor]
    leaves: Sequence[Tensor] = ()
    cotangent: Tensor | None = None

    def prepare(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None

    def run(self) -> None:
        if self.leaves:
            self.forward().backward(self.cotangent)
        else:
            with torch.no_grad():
                self.forward()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Bytes allocated in one run, at the highest point and in all, and the run's seconds."""

    peak: int
    total: int
    seconds: float


def seconds(task: Task) -> float:
    task.prepare()
    start = time.perf_counter()
    task.run()
    return time.perf_counter() - start


def median_seconds(tasks: Mapping[str, Task], rounds: int) -> dict[str, float]:
    """Every round runs each task once, beginning one further on; the first round is discarded."""
    names = list(tasks)
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds + 1):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(seconds(tasks[name]))
    return {name: statistics.median(all_times[1:]) for name, all_times in times.items()}


def usage(task: Task) -> Usage:
    """What torch's allocator handed out in one run: inputs and parameters not included."""
    task.prepare()
    with torch.profiler.profile(profile_memory=True) as prof:
        start = time.perf_counter()
        task.run()
        elapsed = time.perf_counter() - start
    live = peak = total = 0
    for event in prof.profiler.kineto_results.events():
        if event.name() == "[memory]":
            size = event.nbytes()  # negative when freed
            live += size
            peak = max(peak, live)
            total += max(size, 0)
    return Usage(peak=peak, total=total, seconds=elapsed)


def verdict(goal: str, value: float, *, most: float | None = None, least: float = 0.0) -> None:
    """Print whether the value keeps to its limit, and the factor between the two."""
    holds = value >= least if most is None else value <= most
    factor = least / value if most is None else value / most
    spare = 1 / factor if factor else math.inf
    margin = f"{spare:.3g}x to spare" if holds else f"by a factor of {factor:.3g}"
    print(f"  {'HOLDS ' if holds else 'MISSED'}  {goal}: {value:.4g}, {margin}")
