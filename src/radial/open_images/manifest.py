"""The manifest of a subset: one row an image, checked, hashed, as CSV or Parquet.

A ``Manifest`` that exists is a valid one: whatever is wrong with its rows is said when it is
made, so that no id or class name in it can lead out of a directory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from radial.checks import DataError
from radial.files import atomic, write_atomically
from radial.open_images.rows import (
    COLUMNS,
    ROLES,
    ROTATIONS,
    SUBSETS,
    SUFFIXES,
    Row,
    folded,
    folder_fault,
    read_csv,
    read_parquet,
    write_csv,
    write_parquet,
)

__all__ = [
    "COLUMNS", "FORMAT", "ROLES", "ROTATIONS", "SUBSETS", "Manifest", "Row", "folder_fault",
    "read_manifest", "sidecar", "write_manifest",
]  # fmt: skip

FORMAT = 1
_ID = re.compile(r"[0-9a-f]{16}")
_BREAK = re.compile(r"[\r\n\0]")
_LABEL = re.compile(r"/[a-z]+/[0-9a-z_]+")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Rows sorted by class and rank, and how they came about.

    Attributes
    ----------
    rows:
        All images; ``ranks`` of a class are 0, 1, …; as many ``chosen`` in each class.
    settings:
        Of the sampling; anything that JSON holds.
    classes:
        Images available in each class, also those that have no row.
    """

    rows: tuple[Row, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))
        _check_rows(self.rows)
        counts = self.counts()
        if not self.classes:
            object.__setattr__(
                self, "classes", {name: len(rows) for name, rows in self._of.items()}
            )
        if sorted(self.classes) != list(self._of):
            raise DataError(
                f"a manifest with rows of {len(self._of)} classes and counts of "
                f"{len(self.classes)}: they must be the same classes"
            )
        if len(set(counts.values())) > 1:
            few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            raise DataError(
                f"a manifest must have as many chosen images in each class: "
                f"{few!r} has {counts[few]}, {many!r} has {counts[many]}"
            )

    @cached_property
    def _of(self) -> dict[str, list[Row]]:
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.class_name, []).append(row)
        return groups

    def by_class(self) -> dict[str, list[Row]]:
        """Rows of each class in order of rank, classes in order of name."""
        return {name: list(rows) for name, rows in self._of.items()}

    def counts(self, role: str = "chosen") -> dict[str, int]:
        """Rows of that role in each class."""
        return {name: sum(row.role == role for row in rows) for name, rows in self._of.items()}

    @property
    def per_class(self) -> int:
        """Chosen images of each class."""
        return next(iter(self.counts().values()), 0)

    @cached_property
    def sha256(self) -> str:
        """Of the rows in canonical CSV: what ``sha256sum`` says of the CSV file."""
        sink = _Hash()
        write_csv(sink, self.rows)
        return sink.digest.hexdigest()


class _Hash:
    """Takes text like a file, keeps only its hash."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, text: str, /) -> None:
        self.digest.update(text.encode())


def sidecar(path: Path | str) -> Path:
    """Where the settings and the hash of a manifest are: ``<name>.json`` beside it."""
    path = Path(path)
    return path.with_name(f"{path.name}.json")


def write_manifest(path: Path | str, manifest: Manifest) -> None:
    """As CSV or Parquet, by the suffix, with ``<name>.json`` beside it.

    The old ``.json`` goes first and the new one comes last: an interruption leaves a manifest,
    old or new, that reads without it.
    """
    path = _checked_suffix(path)
    about = {
        "format": FORMAT,
        "sha256": manifest.sha256,
        "settings": dict(manifest.settings),
        "classes": dict(sorted(manifest.classes.items())),
        "per_class": manifest.per_class,
    }
    text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        sidecar(path).unlink(missing_ok=True)
        if path.suffix == ".csv":
            with atomic(path) as file:
                write_csv(file, manifest.rows)
        else:
            with atomic(path, "wb") as file:
                write_parquet(file, manifest.rows)
        write_atomically(sidecar(path), text)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def read_manifest(path: Path | str) -> Manifest:
    """A manifest, checked: columns, values, order, and its hash where the ``.json`` is there."""
    path = _checked_suffix(path)
    try:
        about = _read_about(path)
        rows = tuple(read_csv(path) if path.suffix == ".csv" else read_parquet(path))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        manifest = Manifest(
            rows=rows, settings=about.get("settings", {}), classes=about.get("classes", {})
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    if about and about["sha256"] != manifest.sha256:
        raise DataError(
            f"{path} is not what was written: its rows hash to {manifest.sha256[:12]}…, "
            f"{sidecar(path).name} says {about['sha256'][:12]}…"
        )
    if about and about["per_class"] != manifest.per_class:
        raise DataError(
            f"{path} has {manifest.per_class} chosen images a class, "
            f"{sidecar(path).name} says {about['per_class']}"
        )
    return manifest


def _check_rows(rows: tuple[Row, ...]) -> None:
    names: dict[str, str] = {}  # class of each label
    seen: dict[str, str] = {}  # by what a disk may take for the same
    ids: set[str] = set()
    before: str | None = None
    rank = -1
    for number, row in enumerate(rows, start=1):
        if row.class_name != before:
            _check_class(number, row, before or "", names, seen)
            before, rank = row.class_name, -1
        fault = None
        if not isinstance(row.id, str) or not _ID.fullmatch(row.id):
            fault = f"id {row.id!r} is not 16 hexadecimal digits"
        elif row.id in ids:
            fault = f"id {row.id} is there twice"
        elif names.get(row.label) != row.class_name:
            fault = f"label {row.label!r} is not that of class {row.class_name!r}"
        elif row.subset not in SUBSETS:
            fault = f"unknown subset {row.subset!r}; known: {', '.join(SUBSETS)}"
        elif row.role not in ROLES:
            fault = f"unknown role {row.role!r}; known: {', '.join(ROLES)}"
        elif row.rotation not in ROTATIONS:
            fault = f"rotation {row.rotation!r} is not one of 0, 90, 180, 270"
        elif row.rank != rank + 1:
            fault = f"rank {row.rank!r} of class {row.class_name!r} where {rank + 1} is due"
        elif _BREAK.search(row.license + row.author + row.url):
            fault = "license, author or url has a line break"
        if fault:
            raise DataError(f"row {number}: {fault}")
        ids.add(row.id)
        rank += 1


def _check_class(
    number: int, row: Row, before: str, names: dict[str, str], seen: dict[str, str]
) -> None:
    """The first row of a class: its name, its label, and its place in the order."""
    name = row.class_name
    fault = folder_fault(name)
    if fault:
        raise DataError(f"row {number}: class {name!r} cannot be a folder: {fault}")
    if not _LABEL.fullmatch(row.label):
        raise DataError(f"row {number}: label {row.label!r} is not of the form /m/…")
    if name < before:
        raise DataError(f"row {number}: class {name!r} after {before!r}: rows must be sorted")
    if row.label in names:
        raise DataError(f"row {number}: label {row.label!r} has two classes")
    other = seen.setdefault(folded(name), name)
    if other != name:
        raise DataError(
            f"row {number}: classes {other!r} and {name!r} are one folder where case is ignored "
            "or accents are written otherwise"
        )
    names[row.label] = name


def _read_about(path: Path) -> dict[str, Any]:
    place = sidecar(path)
    if not place.exists():
        return {}
    try:
        about = json.loads(place.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{place} is not JSON: it is damaged") from None
    kinds = {"format": int, "sha256": str, "settings": dict, "classes": dict, "per_class": int}
    if not isinstance(about, dict) or not isinstance(about.get("format"), int):
        raise DataError(f"{place} is not that of a manifest: it has no format")
    if about["format"] > FORMAT:
        raise DataError(
            f"{place} has format {about['format']}: written by a newer radial; "
            f"this one reads up to {FORMAT}"
        )
    for key, kind in kinds.items():
        if not isinstance(about.get(key), kind):
            raise DataError(f"{place} has no {key}, or not a {kind.__name__}: it is damaged")
    if not all(type(count) is int for count in about["classes"].values()):
        raise DataError(f"{place} has class counts that are not integers: it is damaged")
    return about


def _checked_suffix(path: Path | str) -> Path:
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path} has suffix {path.suffix!r}; known: {', '.join(SUFFIXES)}")
    return path
