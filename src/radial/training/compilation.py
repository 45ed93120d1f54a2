"""The networks of a step compiled by torch.compile, where the steps to come repay it.

Backbone and heads, momentum copies too, are compiled each in place: state dicts keep their keys,
and losses, queues and Sinkhorn iterations stay plain Python, which costs them nothing. Compiled
code runs in training steps only; validation, monitor and exports run the same networks as they are.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, Literal

import torch

from radial.checks import one_line
from radial.data.augmentations import View
from radial.files import cache_folder
from radial.methods import Method
from radial.training.config import RunConfig

COST = 45.0  # s that compiling takes where its cache is empty: ResNet-9, two cores
GAIN = 0.3  # share of an eager step's time that it saves, before that was measured
MANY = 1000  # versions of one function, over all runs of a process: sizes × networks × modes


def worth_compiling(
    config: RunConfig,
    method: Method,
    views: Sequence[View],
    *,
    steps: int,
    device: torch.device | str,
    context: Callable[[], AbstractContextManager[Any]],
    tell: Callable[[str], None],
) -> bool:
    """Whether the networks are to be compiled: with "on" where it works, with "auto" if it pays.

    All is tried on a copy with noise for images, in ``context``, so that training starts from
    where it would have started: eager steps and, if ``steps`` of them are long enough, compiled
    ones. On several devices ranks would have to agree, so there "auto" is off.
    """
    world, forced = config.devices * config.num_nodes, config.compile == "on"
    if config.compile == "off" or (world > 1 and not forced):
        return False
    assert config.batch_size is not None
    trial, batch = copy.deepcopy(method).to(device), config.batch_size // world
    images = [torch.randn(batch, 3, view.size, view.size, device=device) for view in views]
    labels = [torch.zeros(batch, dtype=torch.long, device=device)] if method.labelled else []

    def seconds() -> float:
        begin = perf_counter()
        with context():
            loss = trial(images, 0.0, *labels).loss
        loss.backward()
        float(loss.detach())  # waits for the device
        return perf_counter() - begin

    eager = min(seconds(), seconds())
    if not forced and steps * eager * GAIN <= COST:
        return False
    tell("compiling the networks")
    try:
        compile_networks(trial)
        with called("compiled"):
            seconds()
            return min(seconds(), seconds()) < eager or forced
    except Exception as error:  # no C++ compiler, no headers, a network that dynamo does not take
        why = one_line(getattr(error, "inner_exception", error), most=160)
        tell(f"not compiled, so slower than it could be: {why}")
        return False


def compile_networks(method: Method) -> None:
    """Backbones and heads of the method, online and momentum copies, each in place.

    Prototypes are one product and stay as they are.
    """
    import torch._dynamo

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # misses CUDA on a CPU
    torch._dynamo.config.recompile_limit = MANY
    torch._dynamo.config.accumulated_recompile_limit = MANY
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    for name, child in method.named_children():
        if name.endswith(("backbone", "head")):
            child.compile(dynamic=False)  # small crops get code of their own


def called(how: Literal["compiled", "eagerly"]) -> AbstractContextManager[Any]:
    """Within, compiled networks run compiled, or as they were written."""
    stance: AbstractContextManager[Any] = torch.compiler.set_stance(
        "default" if how == "compiled" else "force_eager"
    )
    return stance
