"""The one place that reads YAML and JSON from files: bounded, plain, and one line where it is not.

What a file says becomes dicts with texts for keys, lists, texts, numbers, true, false and null:
nothing that refers to itself, nothing deeper or larger than any file of ours, no control
characters that a terminal would obey. What a setting may be is for its dataclass to say
(:func:`radial.checks.as_kind`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from radial.checks import one_line, printable

LARGEST = 1 << 20  # bytes of a YAML file: settings written by hand have a few thousand
DEEPEST = 40  # lists and mappings in one another
MOST = 200_000  # values, each alias counted as what it stands for


def read_yaml(path: Path | str) -> dict[str, Any]:
    """The settings that a YAML file holds, by name.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is too large or too deep, no YAML, or holds no settings by name.
    """
    path = Path(path)
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{path} is no settings file: larger than {LARGEST:,} bytes")
    try:
        values = parse_yaml(content.decode())
    except ValueError as error:  # of UTF-8, too
        raise ValueError(f"{path} is not YAML: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no settings by name")
    return values


def parse_yaml(text: str) -> Any:
    """What a YAML text says, within bounds.

    >>> parse_yaml("{epochs: 3, seeds: [0, 1]}")
    {'epochs': 3, 'seeds': [0, 1]}
    >>> parse_yaml("[" * 50_000)
    Traceback (most recent call last):
    ValueError: more than 40 lists and mappings in one another
    """
    import yaml  # here: who reads JSON does not need it

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0  # before anything is built of it: libyaml has no bound, and ends the process
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError(_too_deep())
        return plain(yaml.load(text, loader))  # a safe loader, both of them
    except yaml.YAMLError as error:
        raise ValueError(one_line(error)) from error


def parse_json(content: str | bytes) -> Any:
    """As ``json.loads``, within bounds; a ValueError for all that is wrong.

    >>> parse_json('{"verdict": "ok"}')
    {'verdict': 'ok'}
    >>> parse_json("[" * 50_000)
    Traceback (most recent call last):
    ValueError: more than 40 lists and mappings in one another
    """
    try:
        return plain(json.loads(content), most=None)  # JSON cannot say more than it is long
    except RecursionError:
        raise ValueError(_too_deep()) from None


def plain(value: Any, *, most: int | None = MOST) -> Any:
    """``value`` if it is made of plain values; texts without control characters.

    >>> plain({"note": chr(27) + "[2Jgone"})
    {'note': '�[2Jgone'}
    """
    left = [most]

    def walk(value: Any, depth: int) -> Any:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                raise ValueError(f"more than {most:,} values")
        if depth > DEEPEST:
            raise ValueError(_too_deep())
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"names must be texts, not {one_line(repr(key), 60)}")
            return {printable(key): walk(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, depth + 1) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        raise ValueError(f"{one_line(repr(value), 60)} is no text, number, list or mapping")

    return walk(value, 0)


def _too_deep() -> str:
    return f"more than {DEEPEST} lists and mappings in one another"
