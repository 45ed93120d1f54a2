"""Which versions of packages are at work. Light to import: no torch."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def versions(names: Iterable[str]) -> dict[str, str]:
    """By the name of the package; what is not installed is left out.

    >>> list(versions(["numpy", "no-such-package"]))
    ['numpy']
    """
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
