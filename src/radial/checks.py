"""Checks of what users hand in; each error names the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:  # names and numbers are checked without waiting for torch
    from torch import Tensor


class DataError(ValueError):
    """Data that cannot be found, downloaded, read or split as asked; the message is one line."""


def one_line(error: BaseException | str, most: int | None = 300) -> str:
    """What an exception says, on one line of ``most`` characters; its type if it says nothing.

    >>> one_line(ValueError("two\\n  lines")), one_line(KeyError())
    ('two lines', 'KeyError')
    """
    line = " ".join(str(error).split()) or type(error).__name__
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def check_size(name: str, value: int, minimum: int = 1) -> None:
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if not whole or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, not {value!r}")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    choices = tuple(choices)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, choices))}")


def check_number(name: str, value: float, low: float = 0.0, high: float = math.inf) -> None:
    """A finite number from ``low`` to ``high``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        limits = f"of at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be a finite number {limits}, not {value!r}")


def check_tensor(name: str, value: object) -> None:
    from torch import Tensor

    if not isinstance(value, Tensor) or not value.is_floating_point():
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} must be a floating-point torch tensor, not {found}")


def check_shape(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    check_tensor(name, value)
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, not {tuple(value.shape)}")


def check_finite(name: str, value: Tensor) -> None:
    bad = value.numel() - int(value.isfinite().sum())
    if bad:
        raise ValueError(f"{name}: {bad} of {value.numel()} values are NaN or inf")
