"""The one reader of files with weights: tensors by name, and what stands beside them.

Nothing of a file is run: pickles are read with ``weights_only=True``, so one that names more than
tensors and plain values is refused. What is wrong with a file is told in one line.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".th", ".pth.tar")
PLACES = ("model", "state_dict")  # where files keep a network; either may hold the other
CLASSIFIERS = ("fc.", "linear.", "head.", "classifier.")
_MOMENTUM = re.compile(
    r"momentum|target|teacher|(^|[._])(mom|m|ema|key|k|slow|avg|swa|offline)([._]|$)", re.IGNORECASE
)
# What radial train writes beside the weights.
_FACTS = {"config", "image_size", "stem", "mean", "std", "head_status", "head_health"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A file as read."""

    path: Path
    content: dict[str, Any]  # all that it holds
    metadata: Mapping[str, str] = field(default_factory=dict)  # in the header of safetensors

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The network's, under the names they have in the file."""
        items = state_dict(self.content).items()
        found = {k: v for k, v in items if isinstance(k, str) and isinstance(v, Tensor)}
        if not found:
            raise ValueError(f"{self.path} holds no tensors by name")
        return found

    @property
    def facts(self) -> Mapping[str, Any]:
        """What radial train wrote beside the weights; nothing for files of others."""
        facts = self.content.get("radial")
        if not isinstance(facts, Mapping) or not facts.keys() >= _FACTS:
            return {}
        config = facts["config"]
        return facts if isinstance(config, Mapping) and {"method", "head"} <= config.keys() else {}


def read_file(path: str | PathLike[str]) -> Checkpoint:
    """Read a file of any kind without running anything of it.

    Args:
        path: ``.safetensors``, or anything that ``torch.save`` wrote: ``.ckpt``, ``.pt``, ``.pth``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, refused, or holds something other than values by name.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such checkpoint: {path}")
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="pt") as file:
                held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return Checkpoint(path=path, content=held, metadata=file.metadata() or {})
        content = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except Exception as error:  # damaged bytes raise nearly anything
        named = re.search(r"global:? ([\w.]+)", str(error), re.IGNORECASE)
        if named is None or not isinstance(error, pickle.UnpicklingError):
            raise ValueError(f"{path} is damaged or no checkpoint") from error
        raise ValueError(
            f"{path}: refused, it holds more than tensors and primitives (it wants {named[1]}); "
            "checkpoints are read with weights_only=True"
        ) from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ValueError(f"{path} holds no tensors by name: expected a state dict, found {kind}")
    return Checkpoint(path=path, content=content)


def read_checkpoint(path: str | PathLike[str]) -> dict[str, Any]:
    """All that a checkpoint of radial train holds; an error for the files of others."""
    checkpoint = read_file(path)
    if not checkpoint.facts or not isinstance(checkpoint.content.get("state_dict"), Mapping):
        raise ValueError(f"{path} is not a checkpoint of radial train")
    return checkpoint.content


def state_dict(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values by name of the network in what a file holds.

    >>> state_dict({"epoch": 3, "state_dict": {"model": {"fc.bias": 0.0}}})
    {'fc.bias': 0.0}
    """
    for _ in range(4):  # a pickle may hold itself
        inner = (content[place] for place in PLACES if isinstance(content.get(place), Mapping))
        content = next(inner, content)
    return content


def part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries below a prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


def is_momentum_copy(name: str) -> bool:
    """Whether a name is that of a slow copy of a network: ``target_head``, ``head_momentum``."""
    return _MOMENTUM.search(name) is not None


def fitting(tensors: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """The tensors under the prefix that matches most wanted names, without a classifier.

    ``module.encoder_q.conv1.weight`` becomes ``conv1.weight`` where that is wanted; of several
    networks that fit alike the first is taken.
    """
    wanted = set(wanted)
    dots = (key[: at + 1] for key in tensors for at, char in enumerate(key) if char == ".")
    prefixes = dict.fromkeys(["", *dots])
    best = max(prefixes, key=lambda prefix: sum(prefix + key in tensors for key in wanted))
    return {
        key: value
        for key, value in part(tensors, best).items()
        if key in wanted or not key.startswith(CLASSIFIERS)
    }


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], complaint: str) -> None:
    """Load all of a module's tensors or none.

    Raises:
        ValueError: the complaint, and what is missing, too much or of another shape.
    """
    own = module.state_dict()
    shapes = {
        key: (tuple(tensors[key].shape), tuple(own[key].shape)) for key in own if key in tensors
    }
    faults = {
        # files from before PyTorch 0.4.1 do not count batches
        "missing": [k for k in own if k not in tensors and not k.endswith("num_batches_tracked")],
        "unexpected": [key for key in tensors if key not in own],
        "of another shape": [f"{k} {a} for {b}" for k, (a, b) in shapes.items() if a != b],
    }
    found = [
        f"{len(keys)} {fault}: {', '.join(keys[:3])}{', …' if len(keys) > 3 else ''}"
        for fault, keys in faults.items()
        if keys
    ]
    if found:
        raise ValueError(f"{complaint}; {'; '.join(found)}")
    module.load_state_dict(dict(tensors))
