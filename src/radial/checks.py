"""Checks of what users hand in; each error names the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def check_size(name: str, value: int, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, not {value!r}")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    choices = tuple(choices)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, choices))}")


def check_shape(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, not {tuple(value.shape)}")


def check_finite(name: str, value: Tensor) -> None:
    bad = int((~torch.isfinite(value)).sum())
    if bad:
        raise ValueError(f"{name}: {bad} of {value.numel()} values are NaN or inf")
