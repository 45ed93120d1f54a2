"""A row of a manifest, and tables of rows as CSV and Parquet."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from radial.checks import DataError

COLUMNS = (
    "id", "subset", "label", "class", "rank", "role", "rotation", "license", "author", "url",
)  # fmt: skip
SUBSETS = ("train", "validation", "test")
ROLES = ("chosen", "reserve", "gone", "cut")
ROTATIONS = (0, 90, 180, 270)
SUFFIXES = (".csv", ".parquet")
FORBIDDEN = '<>:"|?*'  # in names of folders, beside separators, on Windows and on its disks
LONGEST = 200  # bytes of a folder's name

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


def folder_fault(name: str) -> str | None:
    """Why a class name cannot be a folder's name, or None if it can.

    >>> folder_fault("Human face"), folder_fault("../etc")
    (None, "it has a path separator: '/'")
    """
    if not name:
        return "it is empty"
    for separator in "/\\":
        if separator in name:
            return f"it has a path separator: {separator!r}"
    if name.startswith("."):
        return "it begins with a dot"
    if not name.isprintable():
        return "it has a control character"
    for letter in FORBIDDEN:
        if letter in name:
            return f"it has a character that not every system takes: {letter!r}"
    if name != name.strip():
        return "it begins or ends with a space"
    if name.endswith("."):
        return "it ends with a dot"
    if _RESERVED.fullmatch(name.partition(".")[0].rstrip()):
        return "it is a device on Windows"
    if len(name.encode()) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    return None


def folded(name: str) -> str:
    """The same for names that are one folder where case or the form of accents is ignored."""
    composed = unicodedata.normalize("NFC", name).casefold()
    return unicodedata.normalize("NFC", composed)


class Sink(Protocol):
    def write(self, text: str, /) -> object: ...


def write_csv(sink: Sink, rows: Iterable[Row]) -> None:
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)


def read_csv(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from _parse(path, file)


def _parse(path: Path, file: IO[str]) -> Iterator[Row]:
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, None)
        if header is None or tuple(header) != COLUMNS:
            raise DataError(
                f"{path} has columns {','.join(header or ()) or 'none'}; "
                f"a manifest has {','.join(COLUMNS)}"
            )
        shared: dict[str, str] = {}  # one string for all rows that say the same
        for fields in reader:
            if len(fields) != len(COLUMNS):
                raise DataError(
                    f"{path} line {reader.line_num}: {len(fields)} of {len(COLUMNS)} fields: "
                    "the file is damaged or cut short"
                )
            one, subset, label, name, rank, role, rotation, terms, author, url = fields
            subset, label, name, role, terms = (
                shared.setdefault(text, text) for text in (subset, label, name, role, terms)
            )
            yield Row(
                one, subset, label, name, _whole(path, reader.line_num, "rank", rank), role,
                _whole(path, reader.line_num, "rotation", rotation), terms, author, url,
            )  # fmt: skip
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} line {reader.line_num + 1}: {error}") from None


def _whole(path: Path, line: int, column: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise DataError(f"{path} line {line}: {column} {text!r} is not a whole number")
    return int(text)


def _arrow() -> Any:
    try:
        import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            "Parquet needs pyarrow: pip install 'radial-ssl[data]', or take .csv"
        ) from error
    return import_module("pyarrow")


def write_parquet(file: IO[bytes], rows: tuple[Row, ...]) -> None:
    arrow = _arrow()
    numbers = {"rank": arrow.int32(), "rotation": arrow.int16()}
    schema = arrow.schema([(name, numbers.get(name, arrow.string())) for name in COLUMNS])
    columns = list(zip(*rows)) or [()] * len(COLUMNS)
    arrays = [arrow.array(column, kind.type) for column, kind in zip(columns, schema)]
    arrow.parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), file)


def read_parquet(path: Path) -> Iterator[Row]:
    arrow = _arrow()
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", path)
    try:
        table = arrow.parquet.ParquetFile(path).read()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file: {_line(error)}") from None
    if tuple(table.column_names) != COLUMNS:
        raise DataError(
            f"{path} has columns {','.join(table.column_names) or 'none'}; "
            f"a manifest has {','.join(COLUMNS)}"
        )
    for name in COLUMNS:
        kind = table.schema.field(name).type
        whole = name in ("rank", "rotation")
        fits = arrow.types.is_integer(kind) if whole else arrow.types.is_string(kind)
        if not fits or table.column(name).null_count:
            wanted = "whole numbers" if whole else "text"
            raise DataError(f"{path}: column {name} must hold {wanted} in every row, not {kind}")
    for batch in table.to_batches(max_chunksize=65536):
        columns = [column.to_pylist() for column in batch.columns]
        yield from map(Row._make, zip(*columns))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
