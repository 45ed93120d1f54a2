"""Balanced subsets of Open Images: which classes, which images, the same for everyone.

An image takes part if it has exactly one human-verified positive label, counted over all classes
of the release. Within a class the images stand in the order of sha256("seed/id"): the first are
chosen, the rest are reserves. Nothing else decides: not the order of rows in the files, not the
number of threads, not a directory.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import index
from pathlib import Path
from typing import Any

from radial.checks import DataError, check_choice, check_size
from radial.open_images import queries
from radial.open_images.classes import class_names, in_imagenet, overlap, preset_classes
from radial.open_images.manifest import Manifest
from radial.open_images.metadata import Metadata, check_release, check_subsets, read_classes
from radial.open_images.rows import ROTATIONS, SUBSETS, Row

CHOICES = ("largest", "random")
_HOW = ("expected", "memory_limit", "threads", "temp_directory")  # these change no row


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What to sample.

    Attributes
    ----------
    classes:
        How many, or which: display names or labels (/m/…).
    choice:
        Of a number of classes: ``largest`` (by images with a single label; what the paper does)
        or ``random`` (by the seed).
    minimum:
        Images that a class must have.
    per_class:
        Images chosen of each class; by default as many as the smallest chosen class has.
    reserves:
        Further images of each class, for those that are gone; by default all that are left.
    exclude_imagenet:
        Without classes whose name is a synonym of an ImageNet-1K category.
    exclude_overlapping:
        Without classes that are a kind or a part of one already taken (Person, Human face).
    boxable_only:
        Only images of the boxable list.
    expected:
        Images a class that the published subset has; another number is told, not refused.
    memory_limit, threads, temp_directory:
        Of DuckDB.
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
                object.__setattr__(self, "classes", tuple(self.classes))
                _check_names(tuple(self.classes))
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
    displays = read_classes(metadata.classes)
    names = class_names(displays)
    place = settings.memory_limit, settings.threads, settings.temp_directory
    with queries.database(*place) as connection:
        queries.load_single(connection, labels)
        if settings.boxable_only:
            queries.keep_listed(connection, images)
        counts = {k: n for k, n in queries.count_labels(connection).items() if k in displays}
        chosen = choose(counts, displays, settings)
        chosen.sort(key=names.__getitem__)
        smallest = min(chosen, key=lambda label: (counts[label], label))
        per_class = _per_class(counts[smallest], displays[smallest], settings, tell or _warn)
        most = None if settings.reserves is None else per_class + settings.reserves
        picked = queries.pick(connection, chosen, images, seed=settings.seed, most=most)
        rows = tuple(_rows(picked, names, per_class))
    return Manifest(
        rows=rows,
        settings=settings.recorded(),
        classes={names[label]: counts[label] for label in chosen},
    )


def choose(counts: Mapping[str, int], displays: Mapping[str, str], settings: Sampling) -> list[str]:
    """Labels of the chosen classes; ``counts`` has the images of each label."""
    if not isinstance(settings.classes, int):
        return _choose_named(counts, displays, settings)
    able = [label for label, count in counts.items() if count >= settings.minimum]
    if settings.choice == "largest":
        able.sort(key=lambda label: (-counts[label], label))
    else:
        able.sort(key=lambda label: _place(settings.seed, label))
    chosen: list[str] = []
    for label in able:
        if not _left_out(displays[label], [displays[other] for other in chosen], settings):
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


def _choose_named(
    counts: Mapping[str, int], displays: Mapping[str, str], settings: Sampling
) -> list[str]:
    assert not isinstance(settings.classes, int)
    chosen = check_classes(displays, settings)
    for name, label in zip(settings.classes, chosen):
        if counts.get(label, 0) < settings.minimum:
            raise DataError(
                f"class {name!r} has {counts.get(label, 0)} images with exactly one "
                f"human-verified label; at least {settings.minimum} are needed"
            )
    return chosen


def check_classes(displays: Mapping[str, str], settings: Sampling) -> list[str]:
    """Labels of the classes that are named, if any: what can be said before images are counted."""
    chosen: list[str] = []
    for name in () if isinstance(settings.classes, int) else settings.classes:
        label = find_class(name, displays)
        if label in chosen:
            raise DataError(f"class {name!r} is named twice: it is {displays[label]!r} ({label})")
        reason = _left_out(displays[label], [displays[other] for other in chosen], settings)
        if reason:
            raise DataError(f"class {name!r} is asked for, but {reason}")
        chosen.append(label)
    return chosen


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
    known = {display.casefold(): display for display in displays.values()}
    near = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.6)
    hint = f"; did you mean {', '.join(repr(known[n]) for n in near)}?" if near else ""
    raise DataError(f"unknown class {name!r} among {len(displays)}{hint}")


def _left_out(display: str, others: list[str], settings: Sampling) -> str | None:
    if settings.exclude_imagenet and in_imagenet(display):
        return "it is an ImageNet-1K category, which exclude_imagenet leaves out"
    other = overlap(display, others) if settings.exclude_overlapping else None
    return f"it overlaps with {other!r}, which exclude_overlapping leaves out" if other else None


def _place(seed: int, label: str) -> str:
    return hashlib.sha256(f"{seed}/{label}".encode()).hexdigest()


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
    picked: Iterator[queries.Picked], names: Mapping[str, str], per_class: int
) -> Iterator[Row]:
    shared: dict[str, str] = {}  # one string for all rows that say the same
    for one in picked:
        label = shared.setdefault(one.label, one.label)
        role = "chosen" if one.rank < per_class else "reserve"
        terms = _text(one.license)
        yield Row(
            one.id, one.subset, label, names[label], one.rank, role, _rotation(one),
            shared.setdefault(terms, terms), _text(one.author), _text(one.url),
        )  # fmt: skip


def _rotation(image: queries.Picked) -> int:
    """As the lists write it: 0, 90.0, nan, nothing."""
    text = (image.rotation or "").strip().lower()
    if text in ("", "nan"):
        return 0
    with_point = re.fullmatch(r"(\d{1,3})(\.0*)?", text)
    if not with_point or int(with_point[1]) not in ROTATIONS:
        raise DataError(
            f"the image list gives {image.id} the rotation {image.rotation!r}; "
            f"known: {', '.join(map(str, ROTATIONS))}"
        )
    return int(with_point[1])


def _text(text: str | None) -> str:
    """On one line, without control characters."""
    text = text or ""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def _check_names(names: tuple[object, ...]) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise DataError(f"classes must be a number or a list of names, not {list(names)!r}")


@contextmanager
def _data_error() -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from None
