"""Label files and image lists read with DuckDB: streamed, within a limit of memory.

An id is 16 hexadecimal digits: text in the files and in what comes out, and in between the
unsigned 64-bit number that those digits are, which takes a fifth of the memory.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from radial.checks import DataError
from radial.open_images.metadata import IMAGE_COLUMNS, LABEL_COLUMNS, check_table
from radial.open_images.rows import SUBSETS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ID = """CASE WHEN regexp_full_match(ImageID, '[0-9a-f]{16}')
         THEN CAST('0x' || ImageID AS UBIGINT) END"""
_MOST_THREADS = 8  # each takes its part of the memory
# The human files hold nothing else, but a file that mixes them must not pass machine labels off.
_HUMAN = "(contains(Source, 'verification') OR starts_with(Source, 'crowdsource'))"
_POSITIVE = "(Confidence IN ('1', '1.0') OR coalesce(TRY_CAST(Confidence AS DOUBLE) = 1, true))"
_NUMBER = "(Confidence IN ('1', '1.0') OR TRY_CAST(Confidence AS DOUBLE) IS NOT NULL)"


class Picked(NamedTuple):
    """An image that was drawn; the last four are None where no image list has it."""

    id: str
    subset: str
    label: str
    rank: int
    rotation: str | None
    license: str | None
    author: str | None
    url: str | None


@contextmanager
def database(
    memory_limit: str, threads: int | None, directory: Path | str | None
) -> Iterator[DuckDBPyConnection]:
    """A database in memory, which moves to a temporary folder what does not fit."""
    try:
        import duckdb
    except ImportError as error:
        raise DataError("sampling needs DuckDB: pip install 'radial-ssl[data]'") from error
    try:
        beside = tempfile.TemporaryDirectory(prefix="radial-", dir=directory)
    except OSError as error:
        raise DataError(f"cannot make a temporary folder: {error}") from error
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": beside.name,
        "preserve_insertion_order": False,
    }
    config["threads"] = threads or min(_MOST_THREADS, os.cpu_count() or 1)
    with beside:
        try:
            with duckdb.connect(":memory:", config=config) as connection:
                yield connection
        except duckdb.OutOfMemoryException as error:
            raise DataError(
                f"memory_limit {memory_limit} is too little, or {beside.name} is full"
            ) from error
        except duckdb.Error as error:
            raise DataError(_one_line(str(error))) from error


def load_single(connection: DuckDBPyConnection, labels: Mapping[str, Path]) -> None:
    """Table ``single``: (id, subset, label) of the images with exactly one positive label.

    A label that is there twice, verified in two ways, counts once; an image that is in two
    subsets belongs to the first of them, with the labels of both.
    """
    tables = {
        subset: _table(path, check_table(path, LABEL_COLUMNS)) for subset, path in labels.items()
    }
    parts = " UNION ALL ".join(
        f"""SELECT CASE WHEN {_NUMBER} THEN {_ID} END AS id, {SUBSETS.index(subset)}::UTINYINT
            AS subset, LabelName AS label FROM {table} WHERE {_HUMAN} AND {_POSITIVE}"""
        for subset, table in tables.items()
    )
    connection.execute(
        f"""CREATE TABLE single AS SELECT id, min(subset) AS subset, min(label) AS label
            FROM ({parts}) GROUP BY id HAVING min(label) = max(label) OR id IS NULL"""
    )
    if connection.execute("SELECT 1 FROM single WHERE id IS NULL").fetchone():
        _say_what_is_wrong(connection, labels, tables)


def _say_what_is_wrong(
    connection: DuckDBPyConnection, labels: Mapping[str, Path], tables: Mapping[str, str]
) -> None:
    for subset, path in labels.items():
        row = connection.execute(
            f"""SELECT ImageID, Confidence FROM {tables[subset]} WHERE {_HUMAN} AND {_POSITIVE}
                AND (TRY_CAST(Confidence AS DOUBLE) IS NULL OR {_ID} IS NULL)
                ORDER BY 1, 2 LIMIT 1"""
        ).fetchone()
        if row and re.fullmatch("[0-9a-f]{16}", row[0] or ""):
            raise DataError(f"{path}: Confidence {row[1]!r} of image {row[0]} is not a number")
        if row:
            raise DataError(f"{path}: ImageID {row[0]!r} is not 16 hexadecimal digits")
    raise AssertionError("unreachable")


def keep_listed(connection: DuckDBPyConnection, images: Mapping[str, Path]) -> None:
    """Leave in ``single`` only what the image lists have."""
    connection.execute(
        f"""CREATE TABLE listed AS SELECT * FROM single
            WHERE id IN (SELECT {_ID} AS id FROM ({_lists(images, ("ImageID",))}))"""
    )
    connection.execute("DROP TABLE single")
    connection.execute("ALTER TABLE listed RENAME TO single")


def count_labels(connection: DuckDBPyConnection) -> dict[str, int]:
    """Images in ``single`` of each label, sorted by label."""
    counts = connection.execute("SELECT label, count(*) FROM single GROUP BY label").fetchall()
    return dict(sorted(counts))


def pick(
    connection: DuckDBPyConnection,
    labels: Iterable[str],
    images: Mapping[str, Path],
    *,
    seed: int,
    most: int | None,
) -> Iterator[Picked]:
    """The first ``most`` images of each label, in order of the labels given and of rank.

    Rank is the place in ascending order of sha256("seed/id"), as hexadecimal text.
    """
    connection.execute("CREATE TABLE asked (label VARCHAR, place INTEGER)")
    connection.executemany(
        "INSERT INTO asked VALUES (?, ?)", [(label, place) for place, label in enumerate(labels)]
    )
    connection.execute(
        f"""CREATE TABLE picked AS
            SELECT id, subset, place, row_number() OVER (PARTITION BY place ORDER BY
                   sha256('{seed:d}/' || printf('%016x', id))) - 1 AS rank
            FROM single JOIN asked USING (label)
            QUALIFY {"true" if most is None else f"rank < {most:d}"}"""
    )
    connection.execute("DROP TABLE single")
    known = ", ".join(IMAGE_COLUMNS[1:])
    cursor = connection.execute(
        f"""WITH listed AS (
                SELECT {_ID} AS id, min(row({known})) AS about
                FROM ({_lists(images, IMAGE_COLUMNS)})
                WHERE {_ID} IN (SELECT id FROM picked) GROUP BY ALL)
            SELECT printf('%016x', id), subset, label, rank,
                   about[4], about[2], about[3], about[1]
            FROM picked JOIN asked USING (place) LEFT JOIN listed USING (id)
            ORDER BY place, rank"""
    )
    while rows := cursor.fetchmany(10_000):
        for one, subset, *rest in rows:
            yield Picked(one, SUBSETS[subset], *rest)


def _lists(images: Mapping[str, Path], columns: tuple[str, ...]) -> str:
    """All image lists as one table."""
    return " UNION ALL ".join(
        f"SELECT {', '.join(columns)} FROM "
        + _table(path, check_table(path, IMAGE_COLUMNS), free_text=True)
        for path in images.values()
    )


def _table(path: Path, header: list[str], *, free_text: bool = False) -> str:
    """A file as DuckDB reads it.

    Titles and authors are free text. They may have quotes anyhow, and line breaks, at which
    DuckDB would begin in the middle of a title where it reads a file in parallel.
    """
    plain = not free_text
    columns = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in header)
    place = re.sub(r"([*?\[])", r"[\1]", str(path))  # a name, not a pattern
    return f"""read_csv({_quoted(place)}, auto_detect = false, header = true, delim = ',',
               quote = '"', escape = '"', strict_mode = {plain}, parallel = {plain},
               columns = {{{columns}}})"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _one_line(message: str) -> str:
    """What is wrong with which line of which file, out of the page that DuckDB says about it."""
    place = re.search(r"^\s*file = (.+)$", message, re.MULTILINE)
    line = re.search(r"CSV Error on Line: (\d+)", message)
    found = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if place and line and found:
        cut = ": is the file cut short?" if int(found[2]) < int(found[1]) else ""
        return f"{place[1]} line {line[1]}: {found[2]} of {found[1]} fields{cut}"
    if place and line:
        about = message.split("Possible", 1)[0].strip().splitlines()
        return f"{place[1]} line {line[1]}: {about[-1].strip()}"
    first = message.strip().splitlines()[0]
    if "GZIP" in first:
        return f"{first.rpartition(': ')[2]} is not a whole gzip file"
    return f"DuckDB: {first}"
