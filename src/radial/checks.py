"""Checks of what users hand in; each error names the value and what is allowed."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, get_args, get_origin

if TYPE_CHECKING:  # names and numbers are checked without waiting for torch
    from torch import Tensor


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class DataError(ValueError):
    """Data that cannot be found, downloaded, read or split as asked; the message is one line."""


class MissingPackage(ModuleNotFoundError, ValueError):
    """A package that a feature needs is not installed; the message names the extra that has it."""


# Which extra of radial-ssl brings a package, by the name it is imported by: where it is imported at
# the top of a module, so that nobody asked needs() before.
_EXTRAS = {
    "PIL": "score", "jinja2": "score", "plotly": "score", "sklearn": "score",
    "torchvision": "score", "yaml": "score",
    "lightly": "train", "lightning_fabric": "train", "lightning_utilities": "train",
    "pytorch_lightning": "train", "torchmetrics": "train",
    "pandas": "study", "pyarrow": "study", "shap": "study", "xgboost": "study",
    "duckdb": "data", "filelock": "data", "urllib3": "data",
}  # fmt: skip


def needs(extra: str, *packages: str) -> None:
    """Asks for packages before they are imported, so that who lacks one is told the extra.

    Args:
        extra: of radial-ssl, as in ``pip install 'radial-ssl[score]'``.
        packages: by the names they are imported by.

    Raises:
        MissingPackage: One of them is not installed; a ModuleNotFoundError and a ValueError.
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        raise MissingPackage(_hint(extra, missing))


def with_hint(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error; with the extra that has what is missing, if one has."""
    name = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(name)
    return error if extra is None else MissingPackage(_hint(extra, [name]))


def _hint(extra: str, missing: list[str]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    return f"{', '.join(missing)} {verb} not installed: pip install 'radial-ssl[{extra}]'"


def one_line(error: BaseException | str, most: int | None = 300) -> str:
    """What an exception says, on one line of ``most`` characters; its type if it says nothing.

    >>> one_line(ValueError("two\\n  lines")), one_line(KeyError())
    ('two lines', 'KeyError')
    """
    line = printable(" ".join(str(error).split())) or type(error).__name__
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def printable(text: str) -> str:
    """Without what a terminal would obey; line breaks and tabs stay.

    >>> printable("\\x1b[31mred\\x07")
    '�[31mred�'
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def check_size(name: str, value: int, minimum: int = 1) -> None:
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if not whole or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, not {value!r}")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    choices = tuple(choices)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        known = ", ".join(map(repr, choices))
        raise ValueError(f"unknown {name} {value!r}; known: {known}{did_you_mean(value, choices)}")


def did_you_mean(value: object, choices: Iterable[object]) -> str:
    """
    >>> did_you_mean("simclrr", ["moco", "simclr"]), did_you_mean("x", ["moco"])
    ("; did you mean 'simclr'?", '')
    """
    close = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_number(name: str, value: float, low: float = 0.0, high: float = math.inf) -> None:
    """A finite number from ``low`` to ``high``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        limits = f"of at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be a finite number {limits}, not {value!r}")


WORDS: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "a text",
    tuple: "a list of names",
}


def as_kind(name: str, value: Any, kind: Any) -> Any:
    """``value``, from a command line or a YAML file, as its annotation says.

    Texts become numbers, switches and lists of names; YAML reads 1e-3 as a text and 32 as a
    number where a name is meant. What does not fit is told in words.

    Args:
        name: of the setting, for the message.
        value: a text, or what YAML makes of one.
        kind: str, int, float, bool, a Literal of texts, tuple[str, ...], or one of these | None.

    >>> as_kind("epochs", "10", int), as_kind("lr", "1e-3", float | None)
    (10, 0.001)
    >>> as_kind("epochs", "3.5", int)
    Traceback (most recent call last):
    ValueError: epochs must be a whole number, not '3.5'
    """
    kinds = [part for part in get_args(kind) or (kind,) if part is not NoneType]
    if value is None and NoneType in get_args(kind):
        return None
    if get_origin(kind) is Literal or get_origin(kinds[0]) is Literal:
        choices = get_args(kind if get_origin(kind) is Literal else kinds[0])
        if isinstance(value, bool) and "on" in choices:  # what YAML makes of on and off
            value = "on" if value else "off"
        if str(value) in choices and not isinstance(value, bool):
            return str(value)
        close = did_you_mean(value, choices)
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}{close}")
    wanted = tuple if tuple in (get_origin(kind), get_origin(kinds[0])) else kinds[0]
    try:
        return _as(wanted, value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {WORDS[wanted]}, not {value!r}") from None


def _as(kind: Any, value: Any) -> Any:
    text, number = isinstance(value, str), isinstance(value, int | float)
    if kind is bool and text:
        value = {"true": True, "yes": True, "false": False, "no": False}.get(value.lower())
    elif kind is int and text:
        value = int(value)
    elif kind is float and (text or (number and not isinstance(value, bool))):
        value = float(value)
    elif kind is tuple and (text or isinstance(value, list | tuple)):
        words = value.strip("[]").split(",") if text else value
        value = tuple(_as(str, word).strip(" '\"") for word in words if word != "")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    return value


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
