"""The networks of a step compiled by torch.compile, where the steps to come repay it.

Backbone and heads, momentum copies too, are compiled each in place: state dicts keep their keys,
and losses, queues and Sinkhorn iterations stay plain Python, which costs them nothing. Compiled
code runs in training steps only; validation, monitor and exports run the same networks as they are.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from radial import files
from radial.checks import one_line
from radial.data.augmentations import View
from radial.documents import parse_json
from radial.files import write_atomically
from radial.methods import Method
from radial.training.config import RunConfig

COLD, WARM = 45.0, 5.0  # s that compiling takes, without and with its cache: ResNet-9, two cores
GAIN = 0.3  # share of an eager step's time that compiling saves, where it was not measured yet
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

    All is tried on a copy with noise for images, so that training starts from where it would
    have started: a few eager steps and, if ``steps`` of them are long enough, some compiled ones.
    What these save is kept beside the compile cache, for the next run of this kind.

    Args:
        config: resolved; compile, batch_size, devices and precision count here.
        method: with the networks that would be compiled; left as it is.
        views: whose sizes the networks will see.
        steps: to come.
        device: of the run.
        context: what the forward pass runs in, such as autocast.
        tell: takes one line for the user.

    Returns:
        True after a compiled step has worked; False where it would not pay, where ranks would
        have to agree on it ("auto" on several devices), or where it failed, which is told.
    """
    world, forced = config.devices * config.num_nodes, config.compile == "on"
    if config.compile == "off" or (world > 1 and not forced):
        return False
    assert config.batch_size is not None
    trial, batch = copy.deepcopy(method).to(device), config.batch_size // world
    images = [torch.randn(batch, 3, view.size, view.size, device=device) for view in views]
    labels = [torch.zeros(batch, dtype=torch.long, device=device)] if method.labelled else []

    def seconds() -> float:
        begin = time.perf_counter()
        with context():
            loss = trial(images, 0.0, *labels).loss
        loss.backward()
        float(loss.detach())  # waits for the device
        return time.perf_counter() - begin

    record = cache_folder() / "gains" / f"{_fingerprint(config, method, images)}.json"
    known = _read_gain(record)
    cost, gain = (COLD, GAIN) if known is None else (WARM, known)
    eager = seconds()
    for _ in range(2):  # the first step is slow, and most runs are short
        if not forced and steps * eager * gain <= cost:
            return False
        eager = min(eager, seconds())
    if known is None:
        tell("compiling the networks, once for all runs of this kind")
    try:
        compile_networks(trial)
        with called("compiled"):
            seconds()
            compiled = min(seconds(), seconds())
        gain = 1.0 - compiled / eager
        record.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(record, json.dumps({"gain": round(gain, 3)}))
    except Exception as error:  # no C++ compiler, no headers, a network that dynamo does not take
        why = one_line(getattr(error, "inner_exception", error), most=160)
        tell(f"not compiled, so slower than it could be: {why}")
        return False
    return forced or gain > 0.0


def compile_networks(method: Method) -> None:
    """Backbones and heads of the method, online and momentum copies, each in place.

    Prototypes are one product and stay as they are.
    """
    import torch._dynamo

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # misses CUDA on a CPU
    torch._dynamo.config.recompile_limit = MANY
    torch._dynamo.config.accumulated_recompile_limit = MANY
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder()))
    for name, child in method.named_children():
        if name.endswith(("backbone", "head")):
            child.compile(dynamic=False)  # small crops get code of their own


def called(how: Literal["compiled", "eagerly"]) -> AbstractContextManager[Any]:
    """Within, compiled networks run compiled, or as they were written."""
    stance: AbstractContextManager[Any] = torch.compiler.set_stance(
        "default" if how == "compiled" else "force_eager"
    )
    return stance


def cache_folder() -> Path:
    """Of compiled code, for all runs of this user on this machine."""
    return files.cache_folder() / "compiled"


def _fingerprint(config: RunConfig, method: Method, images: Sequence[Tensor]) -> str:
    """Of what code is compiled for: layers, shapes, precision, the device, torch, its threads."""
    shapes = sorted({tuple(image.shape) for image in images})
    place = (images[0].device.type, torch.get_num_threads(), torch.__version__)
    whole = "\n".join(map(str, (method, shapes, config.precision, *place)))
    return hashlib.sha256(whole.encode()).hexdigest()[:24]


def _read_gain(path: Path) -> float | None:
    try:
        gain = float(parse_json(path.read_bytes())["gain"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return gain
