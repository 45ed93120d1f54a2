"""The manifest of a subset: one row an image, checked, hashed, as CSV or Parquet.

A ``Manifest`` that exists is a valid one: whatever is wrong with its rows is said when it is
made, so that no id or class name in it can lead out of a directory.
"""

from __future__ import annotations

import csv
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from sys import intern
from typing import IO, Any, NamedTuple, Protocol

from radial.checks import DataError, one_line
from radial.documents import parse_json
from radial.files import atomic, write_json

FORMAT = 1
COLUMNS = (
    "id", "subset", "label", "class", "rank", "role", "rotation", "license", "author", "url",
)  # fmt: skip
NUMBERS = ("rank", "rotation")  # the other columns are text
SUBSETS = ("train", "validation", "test")
ROLES = ("chosen", "reserve", "gone", "cut")
ROTATIONS = (0, 90, 180, 270)
SUFFIXES = (".csv", ".parquet")
FORBIDDEN = '<>:"|?*'  # in names of folders, beside separators, on Windows and on its disks
LONGEST = 200  # bytes of a folder's name

_ID = re.compile(r"[0-9a-f]{16}")
_BREAK = re.compile(r"[\r\n\0]")
_LABEL = re.compile(r"/[a-z]+/[0-9a-z_]+")
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9¹²³]|conin\$|conout\$", re.IGNORECASE)


class Row(NamedTuple):
    """An image; the fields are the columns, in their order."""

    id: str  # 16 hexadecimal digits
    subset: str  # of Open Images: train, validation or test
    label: str  # /m/…
    class_name: str  # display name, and folder; column `class`
    rank: int  # 0, 1, … in hash order within the class
    role: str  # chosen, reserve; after a fetch also gone, cut
    rotation: int  # degrees counter-clockwise
    license: str = ""
    author: str = ""
    url: str = ""

    @property
    def path(self) -> str:
        """Of the file, in the directory of the subset."""
        return f"{self.class_name}/{self.id}.jpg"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Rows sorted by class and rank, and how they came about.

    Attributes:
        rows: All images; the ranks of a class are 0, 1, …; as many chosen in each class.
        settings: Of the sampling; anything that JSON holds.
        classes: Images available in each class, also those that have no row.
    """

    rows: tuple[Row, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))
        _check_rows(self.rows)
        counts = self.counts()
        if not self.classes:
            object.__setattr__(self, "classes", {k: len(rows) for k, rows in self._of.items()})
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
        _write_csv(sink, self.rows)
        return sink.digest.hexdigest()


class _Sink(Protocol):
    def write(self, text: str, /) -> object: ...


class _Hash:
    """Takes text like a file, keeps only its hash."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, text: str, /) -> None:
        self.digest.update(text.encode())


def folder_fault(name: str) -> str | None:
    """Why a class name cannot be a folder's name, or None if it can.

    >>> folder_fault("Cat"), folder_fault("../Cat")
    (None, 'it has a path separator')
    """
    faults = {
        "it is empty": not name,
        "it has a path separator": "/" in name or "\\" in name,
        "it begins with a dot": name.startswith("."),
        "it has a control character": not name.isprintable(),
        f"not every system takes any of {FORBIDDEN} in it": bool(set(FORBIDDEN) & set(name)),
        "it begins or ends with a space": name != name.strip(),
        "it ends with a dot": name.endswith("."),
        "it is a device on Windows": bool(_RESERVED.fullmatch(name.partition(".")[0].rstrip())),
        f"it is longer than {LONGEST} bytes": len(name.encode(errors="replace")) > LONGEST,
    }
    return next((fault for fault, found in faults.items() if found), None)


def folded(name: str) -> str:
    """The same for names that are one folder where case or the form of accents is ignored."""
    composed = unicodedata.normalize("NFC", name).casefold()
    return unicodedata.normalize("NFC", composed)


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
    try:
        sidecar(path).unlink(missing_ok=True)
        if path.suffix == ".csv":
            with atomic(path) as file:
                _write_csv(file, manifest.rows)
        else:
            with atomic(path, "wb") as file:
                _write_parquet(file, manifest.rows)
        write_json(sidecar(path), about)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def read_manifest(path: Path | str) -> Manifest:
    """A manifest, checked: columns, values, order, and its hash where the ``.json`` is there."""
    path = _checked_suffix(path)
    try:
        about = _read_about(sidecar(path))
        rows = tuple(_read_csv(path) if path.suffix == ".csv" else _read_parquet(path))
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
    before, rank = "", -1
    for number, row in enumerate(rows, start=1):
        fault = None
        if row.class_name != before or number == 1:
            fault = _class_fault(row, before, names, seen)
            names[row.label] = before = row.class_name
            rank = -1
        rank += 1
        if fault:
            pass
        elif not isinstance(row.id, str) or not _ID.fullmatch(row.id):
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
        elif row.rank != rank:
            fault = f"rank {row.rank!r} of class {row.class_name!r} where {rank} is due"
        elif _BREAK.search(row.license + row.author + row.url):
            fault = "license, author or url has a line break"
        if fault:
            raise DataError(f"row {number}: {fault}")
        ids.add(row.id)


def _class_fault(row: Row, before: str, names: dict[str, str], seen: dict[str, str]) -> str | None:
    """Of the first row of a class: its name, its label, and its place in the order."""
    name = row.class_name
    if fault := folder_fault(name):
        return f"class {name!r} cannot be a folder: {fault}"
    if not _LABEL.fullmatch(row.label):
        return f"label {row.label!r} is not of the form /m/…"
    if name < before:
        return f"class {name!r} after {before!r}: rows must be sorted"
    if row.label in names:
        return f"label {row.label!r} has two classes"
    other = seen.setdefault(folded(name), name)
    if other != name:
        return (
            f"classes {other!r} and {name!r} are one folder where case is ignored "
            "or accents are written otherwise"
        )
    return None


def _read_about(place: Path) -> dict[str, Any]:
    if not place.exists():
        return {}
    try:
        about = parse_json(place.read_bytes())
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


def _check_columns(path: Path, found: Sequence[str]) -> None:
    if tuple(found) != COLUMNS:
        raise DataError(
            f"{path} has columns {','.join(found) or 'none'}; a manifest has {','.join(COLUMNS)}"
        )


def _write_csv(sink: _Sink, rows: Iterable[Row]) -> None:
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)


def _read_csv(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            _check_columns(path, next(reader, []))
            for fields in reader:
                line = f"{path} line {reader.line_num}"
                if len(fields) != len(COLUMNS):
                    raise DataError(
                        f"{line}: {len(fields)} of {len(COLUMNS)} fields: "
                        "the file is damaged or cut short"
                    )
                one, subset, label, name, rank, role, rotation, terms, author, url = fields
                yield Row(
                    one, intern(subset), intern(label), intern(name), _whole(line, "rank", rank),
                    intern(role), _whole(line, "rotation", rotation), intern(terms), author, url,
                )  # fmt: skip
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path} line {reader.line_num + 1}: {error}") from None


def _whole(line: str, column: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise DataError(f"{line}: {column} {text!r} is not a whole number")
    return int(text)


def _arrow() -> Any:
    try:
        import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            "Parquet needs pyarrow: pip install 'radial-ssl[data]', or take .csv"
        ) from error
    return import_module("pyarrow")


def _write_parquet(file: IO[bytes], rows: tuple[Row, ...]) -> None:
    arrow = _arrow()
    numbers = {"rank": arrow.int32(), "rotation": arrow.int16()}
    schema = arrow.schema([(name, numbers.get(name, arrow.string())) for name in COLUMNS])
    columns = list(zip(*rows)) or [()] * len(COLUMNS)
    arrays = [arrow.array(column, kind.type) for column, kind in zip(columns, schema)]
    arrow.parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), file)


def _read_parquet(path: Path) -> Iterator[Row]:
    arrow = _arrow()
    with path.open("rb") as file:
        try:
            table = arrow.parquet.ParquetFile(file).read()
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a whole Parquet file: {one_line(error)}") from None
    _check_columns(path, table.column_names)
    for name in COLUMNS:
        kind = table.schema.field(name).type
        fits = arrow.types.is_integer if name in NUMBERS else arrow.types.is_string
        if not fits(kind) or table.column(name).null_count:
            wanted = "whole numbers" if name in NUMBERS else "text"
            raise DataError(f"{path}: column {name} must hold {wanted} in every row, not {kind}")
    for batch in table.to_batches(max_chunksize=65536):
        yield from map(Row._make, zip(*(column.to_pylist() for column in batch.columns)))
