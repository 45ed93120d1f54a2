"""Balanced subsets of Open Images: which classes, which images, the same for everyone.

An image takes part if it has exactly one human-verified positive label, counted over all classes
of the release. Within a class the images stand in the order of sha256("seed/id"): the first are
chosen, the rest are reserves. Nothing else decides: not the order of rows in the files, not the
number of threads, not a directory.

Label files and image lists are read with DuckDB: streamed, within a limit of memory. An id is 16
hexadecimal digits: text in the files and in what comes out, and in between the unsigned 64-bit
number that those digits are, which takes a fifth of the memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import index
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any

from radial.checks import DataError, check_choice, check_size, did_you_mean
from radial.open_images.catalogue import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    Metadata,
    Overlaps,
    check_release,
    check_subsets,
    check_table,
    class_names,
    in_imagenet,
    preset_classes,
    read_classes,
    read_overlaps,
)
from radial.open_images.manifest import ROTATIONS, SUBSETS, Manifest, Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CHOICES = ("largest", "random")

_HOW = ("expected", "memory_limit", "threads", "temp_directory")  # these change no row
_ID = """CASE WHEN regexp_full_match(ImageID, '[0-9a-f]{16}')
         THEN CAST('0x' || ImageID AS UBIGINT) END"""
_MOST_THREADS = 8  # each takes its part of the memory
# The human files hold nothing else, but a file that mixes them must not pass machine labels off.
_HUMAN = "(contains(Source, 'verification') OR starts_with(Source, 'crowdsource'))"
_POSITIVE = "(Confidence IN ('1', '1.0') OR coalesce(TRY_CAST(Confidence AS DOUBLE) = 1, true))"
_NUMBER = "(Confidence IN ('1', '1.0') OR TRY_CAST(Confidence AS DOUBLE) IS NOT NULL)"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What to sample.

    Attributes:
        classes: How many, or which: display names or labels (/m/…).
        choice: Of a number of classes: ``largest`` (by images with a single label; what the paper
            does) or ``random`` (by the seed).
        minimum: Images that a class must have.
        per_class: Images chosen of each class; by default as many as the smallest chosen class has.
        reserves: Further images of each class, for those that are gone; by default all left.
        seed: Of the order of images, and of a random choice.
        exclude_imagenet: Without classes whose name is a synonym of an ImageNet-1K category.
        exclude_overlapping: Without classes that are a kind or a part of one already taken, by the
            official hierarchy (Person, Human face).
        boxable_only: Only images of the boxable list.
        subsets: Of train, validation, test.
        release: ``boxable`` or ``v7``.
        expected: Images a class that the published subset has; another number is told, not refused.
        memory_limit, threads, temp_directory: Of DuckDB.
    """

    classes: int | tuple[str, ...] = 10
    choice: str = "largest"
    minimum: int = 1
    per_class: int | None = None
    reserves: int | None = None
    seed: int = 42
    exclude_imagenet: bool = False
    exclude_overlapping: bool = False
    boxable_only: bool = False
    subsets: tuple[str, ...] = SUBSETS
    release: str = "boxable"
    expected: int | None = None
    memory_limit: str = "1GB"
    threads: int | None = None
    temp_directory: Path | str | None = None

    def __post_init__(self) -> None:
        with _data_error():
            if isinstance(self.classes, list | tuple):
                names = tuple(self.classes)
                object.__setattr__(self, "classes", names)
                if not names or not all(isinstance(name, str) and name for name in names):
                    raise DataError(
                        f"classes must be a number or a list of names, not {list(names)!r}"
                    )
            else:
                check_size("classes", self.classes)
                object.__setattr__(self, "classes", index(self.classes))
            check_choice("choice", self.choice, CHOICES)
            check_size("minimum", self.minimum)
            check_size("seed", self.seed, 0)
            for name, least in (("per_class", 1), ("reserves", 0), ("threads", 1)):
                value = getattr(self, name)
                if value is not None:
                    check_size(name, value, least)
        check_release(self.release)
        object.__setattr__(self, "subsets", check_subsets(self.subsets))
        if not re.fullmatch(r"\d+(\.\d+)? ?[KMGT]i?B", str(self.memory_limit)):
            raise DataError(f"memory_limit must be like 500MB or 2GB, not {self.memory_limit!r}")

    def recorded(self) -> dict[str, Any]:
        """For the manifest: what decides about its rows."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _HOW}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def preset(name: str, **changes: Any) -> Sampling:
    """Settings of a published subset, ``oiv7-10`` to ``oiv7-100``, with changes.

    >>> preset("oiv7-30").expected, preset("oiv7-30", subsets=("test",)).expected
    (1414, None)
    """
    classes, images = preset_classes(name)
    same = changes.keys() <= {"seed", "reserves", *_HOW}
    return Sampling(**{"classes": classes, "expected": images if same else None} | changes)


def sample(
    metadata: Metadata, settings: Sampling, *, tell: Callable[[str], None] | None = None
) -> Manifest:
    """The manifest of a balanced subset.

    What is worth a line is handed to ``tell``; by default it is a warning.
    """
    if metadata.release != settings.release or set(settings.subsets) - set(metadata.labels):
        raise DataError(
            f"metadata of release {metadata.release!r}, subsets {', '.join(metadata.labels)}; "
            f"asked for {settings.release!r}, {', '.join(settings.subsets)}"
        )
    if settings.boxable_only and not metadata.boxable_only:
        raise DataError("boxable_only needs the boxable image lists, these list all images")
    labels = {subset: metadata.labels[subset] for subset in settings.subsets}
    images = {subset: metadata.images[subset] for subset in settings.subsets}
    if settings.exclude_overlapping and metadata.hierarchy is None:
        raise DataError("exclude_overlapping needs the hierarchy of classes")
    displays, overlaps = read_classes(metadata.classes), read_overlaps(metadata.hierarchy)
    names = class_names(displays)
    place = settings.memory_limit, settings.threads, settings.temp_directory
    with _database(*place) as connection:
        _load_single(connection, labels)
        if settings.boxable_only:
            _keep_listed(connection, images)
        counts = {k: n for k, n in _count_labels(connection).items() if k in displays}
        chosen = choose(counts, displays, settings, overlaps)
        chosen.sort(key=names.__getitem__)
        smallest = min(chosen, key=lambda label: (counts[label], label))
        per_class = _per_class(counts[smallest], displays[smallest], settings, tell or _warn)
        most = None if settings.reserves is None else per_class + settings.reserves
        picked = _pick(connection, chosen, images, seed=settings.seed, most=most)
        rows = tuple(_rows(picked, names, per_class))
    return Manifest(
        rows=rows,
        settings=settings.recorded(),
        classes={names[label]: counts[label] for label in chosen},
    )


def choose(
    counts: Mapping[str, int],
    displays: Mapping[str, str],
    settings: Sampling,
    overlaps: Overlaps | None = None,
) -> list[str]:
    """Labels of the chosen classes; ``counts`` has the images of each label."""
    overlaps = overlaps or {}
    if not isinstance(settings.classes, int):
        chosen = check_classes(displays, settings, overlaps)
        for name, label in zip(settings.classes, chosen):
            if counts.get(label, 0) < settings.minimum:
                raise DataError(
                    f"class {name!r} has {counts.get(label, 0)} images with exactly one "
                    f"human-verified label; at least {settings.minimum} are needed"
                )
        return chosen
    able = [label for label, count in counts.items() if count >= settings.minimum]
    if settings.choice == "largest":
        able.sort(key=lambda label: (-counts[label], label))
    else:
        able.sort(key=lambda label: hashlib.sha256(f"{settings.seed}/{label}".encode()).hexdigest())
    chosen = []
    for label in able:
        if not _left_out(label, chosen, displays, settings, overlaps):
            chosen.append(label)
        if len(chosen) == settings.classes:
            return chosen
    limits = [f"at least {settings.minimum} images"] if settings.minimum > 1 else []
    limits += ["without ImageNet-1K synonyms"] if settings.exclude_imagenet else []
    limits += ["without overlapping classes"] if settings.exclude_overlapping else []
    raise DataError(
        f"{settings.classes} classes asked for, but only {len(chosen)} have images with exactly "
        f"one human-verified label{f' ({chr(44).join(limits)})' if limits else ''}"
    )


def check_classes(
    displays: Mapping[str, str], settings: Sampling, overlaps: Overlaps | None = None
) -> list[str]:
    """Labels of the classes that are named, if any: what can be said before images are counted."""
    chosen: list[str] = []
    for name in () if isinstance(settings.classes, int) else settings.classes:
        label = find_class(name, displays)
        if label in chosen:
            raise DataError(f"class {name!r} is named twice: it is {displays[label]!r} ({label})")
        reason = _left_out(label, chosen, displays, settings, overlaps or {})
        if reason:
            raise DataError(f"class {name!r} is asked for, but {reason}")
        chosen.append(label)
    return chosen


def _left_out(
    label: str,
    chosen: list[str],
    displays: Mapping[str, str],
    settings: Sampling,
    overlaps: Overlaps,
) -> str | None:
    if settings.exclude_imagenet and in_imagenet(displays[label]):
        return "it is an ImageNet-1K category, which exclude_imagenet leaves out"
    related = overlaps.get(label, frozenset()) if settings.exclude_overlapping else ()
    other = next((displays[other] for other in chosen if other in related), None)
    return f"it overlaps with {other!r}, which exclude_overlapping leaves out" if other else None


def find_class(name: str, displays: Mapping[str, str]) -> str:
    """The label of a class, named by label or by display name."""
    if name in displays:
        return name
    same = [label for label, display in displays.items() if display == name]
    same = same or [k for k, display in displays.items() if display.casefold() == name.casefold()]
    if len(same) == 1:
        return same[0]
    if same:
        raise DataError(f"class {name!r} has several labels, name one of them: {', '.join(same)}")
    hint = did_you_mean(name, displays.values())
    raise DataError(f"unknown class {name!r} among {len(displays)}{hint}")


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=4)  # where `sample` was called


def _per_class(available: int, name: str, settings: Sampling, tell: Callable[[str], None]) -> int:
    if settings.expected not in (None, available):
        tell(
            f"{available} images a class, limited by {name!r}; the published subset has "
            f"{settings.expected}: the files are others than those it was made from"
        )
    if settings.per_class is not None and settings.per_class > available:
        raise DataError(
            f"per_class {settings.per_class} is more than class {name!r} has: {available} images"
        )
    return settings.per_class or available


def _rows(
    picked: Iterator[tuple[Any, ...]], names: Mapping[str, str], per_class: int
) -> Iterator[Row]:
    for one, subset, label, rank, rotation, terms, author, url in picked:
        role = "chosen" if rank < per_class else "reserve"
        yield Row(
            one, SUBSETS[subset], intern(label), names[label], rank, role, _rotation(one, rotation),
            intern(_text(terms)), _text(author), _text(url),
        )  # fmt: skip


def _rotation(image: str, text: str | None) -> int:
    """As the lists write it: 0, 90.0, nan, nothing."""
    found = re.fullmatch(
        r"(\d{1,3})(\.0*)?", (text or "").strip().lower().replace("nan", "") or "0"
    )
    if not found or int(found[1]) not in ROTATIONS:
        raise DataError(
            f"the image list gives {image} the rotation {text!r}; "
            f"known: {', '.join(map(str, ROTATIONS))}"
        )
    return int(found[1])


def _text(text: str | None) -> str:
    """On one line, without control characters."""
    text = text or ""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


@contextmanager
def _data_error() -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from None


@contextmanager
def _database(
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


def _load_single(connection: DuckDBPyConnection, labels: Mapping[str, Path]) -> None:
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


def _keep_listed(connection: DuckDBPyConnection, images: Mapping[str, Path]) -> None:
    """Leave in ``single`` only what the image lists have."""
    listed = f"SELECT {_ID} AS id FROM ({_lists(images, ('ImageID',))})"
    connection.execute(
        f"DELETE FROM single WHERE NOT EXISTS (FROM ({listed}) l WHERE l.id = single.id)"
    )


def _count_labels(connection: DuckDBPyConnection) -> dict[str, int]:
    """Images in ``single`` of each label, sorted by label."""
    counts = connection.execute("SELECT label, count(*) FROM single GROUP BY label").fetchall()
    return dict(sorted(counts))


def _pick(
    connection: DuckDBPyConnection,
    labels: Iterable[str],
    images: Mapping[str, Path],
    *,
    seed: int,
    most: int | None,
) -> Iterator[tuple[Any, ...]]:
    """The first ``most`` images of each label, in order of the labels given and of rank.

    (id, number of the subset, label, rank, rotation, license, author, url); the last four are
    None where no image list has it.

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
        yield from rows


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
