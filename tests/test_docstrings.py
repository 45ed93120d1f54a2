"""Everything public says what each argument is and what comes back, in one style (Google's).

ruff holds the form of a docstring (its D rules); that there is one, and that it is complete, is
held here: ruff does not ask for arguments of a docstring that lists none.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import pytorch_lightning as pl

import radial
import radial.data
import radial.methods
import radial.metrics

HELD = {"self", "cls"}


def public() -> Iterator[tuple[str, Any]]:
    """Names that are handed out, and the methods of classes among them."""
    seen: list[Any] = []
    for module in (radial, radial.metrics, radial.methods, radial.data):
        for name in module.__all__:
            value = getattr(module, name)
            error = inspect.isclass(value) and issubclass(value, Exception)
            if not callable(value) or error or any(value is known for known in seen):
                continue
            seen.append(value)
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for inner, part in vars(value).items():
                    part = part.__func__ if isinstance(part, classmethod | staticmethod) else part
                    if not inner.startswith("_") and (
                        inspect.isfunction(part) or is_property(part)
                    ):
                        yield f"{module.__name__}.{name}.{inner}", part


def is_property(part: object) -> bool:
    return isinstance(part, property) or type(part).__name__ == "cached_property"


def sections(text: str) -> dict[str, str]:
    """{"Args": …, "Returns": …} of a docstring that was cleaned."""
    parts = re.split(r"^(Args|Attributes|Returns|Yields|Raises|Example):\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def inherited(name: str) -> bool:
    """What overrides a documented method may say only what is different."""
    *_, owner, inner = name.split(".")
    if owner in ("CollapseGuard", "LabelFreeMonitor"):  # hooks are told by Lightning
        return hasattr(pl.Callback, inner)
    kind = getattr(radial.methods, owner, None)
    return inspect.isclass(kind) and any(
        (vars(base).get(inner).__doc__ or "")
        for base in kind.__mro__[1:]
        if inner in vars(base) and base.__module__.startswith("radial")
    )


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_says_what_it_takes_and_gives(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    overrides = inherited(name)
    assert text or overrides, "no docstring"
    if is_property(value) or overrides:
        return
    told = sections(text)
    listed = told.get("Args", "") + told.get("Attributes", "")
    signature = inspect.signature(value)
    wanted = [n for n in signature.parameters if n not in HELD]
    known = re.findall(r"^    \*{0,2}(\w+):", listed, flags=re.M)
    assert [n for n in wanted if n not in known] == []
    assert [n for n in re.findall(r"^    (\w+):", told.get("Args", ""), flags=re.M)
            if n not in signature.parameters] == []  # fmt: skip
    if not inspect.isclass(value) and signature.return_annotation not in (None, "None"):
        assert "Returns" in told or name.endswith("extra_repr")


def test_a_function_of_radial_shows_how_it_is_called() -> None:
    bare = [
        name
        for name in radial.__all__
        if inspect.isfunction(value := getattr(radial, name))
        and "Example" not in sections(inspect.getdoc(value) or "")
    ]
    assert bare == []
