"""Read trained kernels from a checkpoint without building the model."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from radial.checkpoints import is_momentum_copy, read_file, state_dict
from radial.checks import check_finite

_CENTERS, _SHAPES = "kernels_centers", "log_shapes"
_PREDICTION = re.compile(r"(^|[._])pred", re.IGNORECASE)
_PROJECTION = re.compile(r"proj", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """The kernels of one RBF layer.

    Attributes:
        name: of the layer in its checkpoint.
        centers: c, (K, D).
        shapes: ε, (K).
        widths: σ = 1/(√2 ε), (K).
    """

    name: str
    centers: Tensor
    shapes: Tensor
    widths: Tensor

    @property
    def head(self) -> str:
        """The head the layer belongs to, e.g. ``projection_head``."""
        return _head(self.name)


def load_kernels(
    source: str | os.PathLike[str] | Mapping[str, Any], *, head: str | None = None
) -> tuple[Kernels, ...]:
    """All RBF layers of a checkpoint or state dict; the last one is the one to score.

    Layers are grouped by head and stand in numeric order. The projection head comes last,
    so ``load_kernels(path)[-1]`` is its deepest layer: never one of a prediction head or of
    a momentum copy. Where that choice is not clear the error lists what was found, and
    ``head`` names one of it; then only that head's layers are returned.

    Reads Lightning ``.ckpt`` files, ``.pt``/``.pth`` files and ``.safetensors``, with
    ``weights_only=True``: a pickle that would execute code is refused.

    Args:
        source: path of a checkpoint, or a state dict.
        head: which one, by the name of its module; the projection head by default.

    Returns:
        The layers, that of the projection head's deepest last.

    Raises:
        ValueError: no RBF layer in it, a file that cannot be read, or a choice that is not clear.

    Example:
        >>> from radial import RBFNProjectionHead
        >>> head = RBFNProjectionHead(64, 64, 32, num_kernels=16)
        >>> load_kernels(head.state_dict())[-1].shapes.shape
        torch.Size([16])
    """
    if not isinstance(source, str | os.PathLike | Mapping):
        raise ValueError(f"expected a path or a state dict, not {type(source).__name__}")
    state = state_dict(source if isinstance(source, Mapping) else read_file(source).content)
    names = _layer_names(state)
    if not names:
        some = ", ".join(list(map(str, state))[:5]) or "nothing"
        raise ValueError(f"no RBF layer: no key ends in {_CENTERS!r}; found {some} …")
    heads = {_head(name) for name in names}
    if head is not None:
        if head not in heads:
            raise ValueError(f"no head {head!r} in the checkpoint; found: {_listed(heads)}")
        names, heads = [name for name in names if _head(name) == head], {head}
    chosen = head if head is not None else _projection_head(heads)
    names.sort(key=lambda name: (_head(name) == chosen, _numeric(name)))
    return tuple(_kernels(state, name) for name in names)


def _layer_names(state: Mapping[str, Any]) -> list[str]:
    return [
        str(key).removesuffix(_CENTERS).removesuffix(".")
        for key in state
        if str(key).split(".")[-1] == _CENTERS
    ]


def _head(layer: str) -> str:
    """``projection_head.layers.2`` → ``projection_head``, ``model.rbf10`` → ``model.rbf``."""
    return re.sub(r"(^|\.)layers\.\d+$|\.?\d+$", "", layer)


def _numeric(name: str) -> list[tuple[int, str]]:
    """A sort key that puts 10 after 9."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]


def _projection_head(heads: set[str]) -> str:
    own = {h for h in heads if not _PREDICTION.search(h) and not is_momentum_copy(h)}
    candidates = {head for head in own if _PROJECTION.search(head)} or own
    if len(candidates) != 1:
        raise ValueError(
            f"cannot tell which head is the projection head; found: {_listed(heads)}; "
            "pass head='…' to choose one"
        )
    return candidates.pop()


def _listed(heads: set[str]) -> str:
    return ", ".join(repr(head) for head in sorted(heads))


def _kernels(state: Mapping[str, Any], name: str) -> Kernels:
    prefix = f"{name}." if name else ""
    centers = _tensor(state, prefix + _CENTERS, 2)
    shapes = _tensor(state, prefix + _SHAPES, 1).exp()
    if len(shapes) != len(centers):
        raise ValueError(f"{name}: {len(centers)} centres but {len(shapes)} shapes")
    widths = 1.0 / (math.sqrt(2.0) * shapes)
    return Kernels(name=name, centers=centers, shapes=shapes, widths=widths)


def _tensor(state: Mapping[str, Any], key: str, dimensions: int) -> Tensor:
    value = state.get(key)
    if not isinstance(value, Tensor) or value.dim() != dimensions:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{key} must be a tensor with {dimensions} dimensions, not {found}")
    check_finite(key, value)
    value = value.detach().cpu().clone()
    return value if value.dtype == torch.float64 else value.float()
