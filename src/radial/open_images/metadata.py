"""The official files of Open Images: which there are, where they lie, and whether they are whole.

``boxable`` is what the paper's tool used: the human-verified labels of the 600 boxable classes
(v5 files). ``v7`` is the larger set: 20,000 classes, 2.7 GB of labels for train alone.
"""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from radial.checks import DataError
from radial.open_images.rows import SUBSETS

BASE = "https://storage.googleapis.com/openimages/"
RELEASES = ("boxable", "v7")
LABEL_COLUMNS = ("ImageID", "Source", "LabelName", "Confidence")
CLASS_COLUMNS = ("LabelName", "DisplayName")
IMAGE_COLUMNS = ("ImageID", "OriginalURL", "License", "Author", "Rotation")

Progress = Callable[[str, int, int | None], None]  # file, bytes there, bytes in all where known

_LABELS = {
    "boxable": {
        subset: f"v5/{subset}-annotations-human-imagelabels-boxable.csv" for subset in SUBSETS
    },
    "v7": {
        subset: f"v7/oidv7-{short}-annotations-human-imagelabels.csv"
        for subset, short in zip(SUBSETS, ("train", "val", "test"))
    },
}
_CLASSES = {
    "boxable": "v5/class-descriptions-boxable.csv",
    "v7": "v7/oidv7-class-descriptions.csv",
}
_BOXABLE_IMAGES = {
    "train": "2018_04/train/train-images-boxable-with-rotation.csv",
    "validation": "2018_04/validation/validation-images-with-rotation.csv",
    "test": "2018_04/test/test-images-with-rotation.csv",
}
_TITLE_LINES = 50  # of a record, at most
_ALL_IMAGES = _BOXABLE_IMAGES | {"train": "v6/oidv6-train-images-with-labels-with-rotation.csv"}


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Where the files of a release are; ``labels`` and ``images`` by subset.

    ``boxable_only`` says that ``images`` lists the boxable images only.
    """

    release: str
    labels: Mapping[str, Path]
    classes: Path
    images: Mapping[str, Path]
    boxable_only: bool = True


def official_files(
    release: str = "boxable", subsets: Iterable[str] = SUBSETS, *, boxable_only: bool = False
) -> dict[str, str]:
    """Paths of the files below the base URL, by what they are.

    >>> official_files(subsets=["test"])["labels/test"]
    'v5/test-annotations-human-imagelabels-boxable.csv'
    """
    check_release(release)
    images = _BOXABLE_IMAGES if boxable_only or release == "boxable" else _ALL_IMAGES
    files = {"classes": _CLASSES[release]}
    for subset in check_subsets(subsets):
        files[f"labels/{subset}"] = _LABELS[release][subset]
        files[f"images/{subset}"] = images[subset]
    return files


def find_metadata(
    directory: Path | str | None = None,
    *,
    release: str = "boxable",
    subsets: Iterable[str] = SUBSETS,
    boxable_only: bool = False,
    base: str = BASE,
    cache: Path | str | None = None,
    progress: Progress | None = None,
    check: Callable[[Mapping[str, str]], object] | None = None,
) -> Metadata:
    """The files that sampling needs: in ``directory``, or downloaded once into the cache.

    Parameters
    ----------
    directory:
        With local copies under their official names, as ``.csv`` or ``.csv.gz``, directly in it
        or below it as on the server (``v5/…``). Nothing is downloaded then.
    base:
        URL below which the official paths are.
    cache:
        RADIAL_DATA by default, else ``~/.cache/radial``; the files go to ``open-images/`` in it.
        A download that broke off goes on where it was.
    check:
        Called with the display name of each label as soon as the class list is there, before
        the large files are; an exception ends it all.
    """
    subsets = check_subsets(subsets)
    files = official_files(release, subsets, boxable_only=boxable_only)
    if directory is not None:
        found = _local(Path(directory).expanduser(), files)
        if check is not None:
            check(read_classes(found["classes"]))
    else:
        root = Path(cache or os.environ.get("RADIAL_DATA") or "~/.cache/radial").expanduser()
        found = _downloaded(base, root / "open-images", files, progress, check)
    return Metadata(
        release=release,
        classes=found["classes"],
        labels={subset: found[f"labels/{subset}"] for subset in subsets},
        images={subset: found[f"images/{subset}"] for subset in subsets},
        boxable_only=boxable_only or release == "boxable",
    )


def _local(directory: Path, files: Mapping[str, str]) -> dict[str, Path]:
    if not directory.is_dir():
        raise DataError(f"{directory} is {'not a folder' if directory.exists() else 'not there'}")
    found, missing = {}, []
    for what, name in files.items():
        places = (directory / Path(name).name, directory / name)
        forms = [path.with_name(path.name + end) for path in places for end in ("", ".gz")]
        path = next((form for form in forms if form.is_file()), None)
        if path is None:
            missing.append(Path(name).name)
        else:
            found[what] = path
    if missing:
        raise DataError(
            f"{directory} lacks {len(missing)} of {len(files)} files (.csv or .csv.gz): "
            f"{', '.join(missing)}"
        )
    return found


def _downloaded(
    base: str,
    root: Path,
    files: Mapping[str, str],
    progress: Progress | None,
    check: Callable[[Mapping[str, str]], object] | None,
) -> dict[str, Path]:
    from radial.open_images.transfer import download

    found = {}
    for what, name in files.items():
        path = root / name
        new = not path.is_file()
        if new:
            tell = None
            if progress is not None:
                tell = lambda done, total, name=path.name: progress(name, done, total)  # noqa: E731
            download(f"{base.rstrip('/')}/{name}", path, progress=tell)
        try:
            columns = LABEL_COLUMNS if what.startswith("labels") else IMAGE_COLUMNS
            displays = None
            if what != "classes":
                check_table(path, columns)
            else:
                displays = read_classes(path)
        except DataError:
            if new:  # a server's error page, say: not to be taken for the file next time
                path.unlink(missing_ok=True)
            raise
        if displays is not None and check is not None:
            check(displays)
        found[what] = path
    return found


def check_release(release: str) -> None:
    if release not in RELEASES:
        raise DataError(f"unknown release {release!r}; known: {', '.join(RELEASES)}")


def check_subsets(subsets: Iterable[str]) -> tuple[str, ...]:
    """In the official order, each once."""
    given = [subsets] if isinstance(subsets, str) else list(subsets)
    unknown = [subset for subset in given if subset not in SUBSETS]
    if unknown or not given:
        what = f"unknown subset {unknown[0]!r}" if unknown else "no subset"
        raise DataError(f"{what}; known: {', '.join(SUBSETS)}")
    return tuple(subset for subset in SUBSETS if subset in given)


def check_table(path: Path, columns: tuple[str, ...]) -> list[str]:
    """All columns of a CSV file, after a look at its first line and, if plain, at its last."""
    first = _first_line(path)
    header = next(csv.reader([first]))
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: "
            f"its first line is {first[:80]!r}"
        )
    if len(set(header)) < len(header):
        raise DataError(f"{path} has a column twice: its first line is {first[:80]!r}")
    if path.suffix != ".gz":
        _check_last_line(path, len(header))
    return header


def read_classes(path: Path) -> dict[str, str]:
    """Display name of each label, sorted by label; the file may have a header (v7) or not (v5)."""
    first = _first_line(path)
    names: dict[str, str] = {}
    try:
        with _open(path) as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if not row or (number == 1 and tuple(row[:2]) == CLASS_COLUMNS):
                    continue
                if len(row) != 2 or not row[0].startswith("/"):
                    raise DataError(
                        f"{path} line {number}: {','.join(row)[:60]!r} is not a label (/m/…) and "
                        f"a name{'; is the file cut short?' if len(row) < 2 else ''}"
                    )
                if names.setdefault(row[0], row[1]) != row[1]:
                    raise DataError(f"{path} line {number}: label {row[0]} has two names")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from error
    if not names:
        raise DataError(f"{path} has no classes: its first line is {first[:80]!r}")
    return dict(sorted(names.items()))


def _first_line(path: Path) -> str:
    try:
        with _open(path) as file:
            line = file.readline(1 << 16).removeprefix("\ufeff").rstrip("\r\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    if not line:
        raise DataError(f"{path} is empty, or begins with an empty line")
    if line.lstrip().startswith("<"):
        raise DataError(f"{path} is HTML or XML, not CSV: it begins with {line.strip()[:60]!r}")
    return line


def _check_last_line(path: Path, fields: int) -> None:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        size = min(file.tell(), 1 << 16)
        file.seek(-size, os.SEEK_END)
        tail = file.read()
    if tail.endswith((b"\n", b"\r")):
        return
    lines = tail.decode(errors="replace").splitlines(keepends=True)
    found = len(next(csv.reader(lines[-1:]), []))
    if found >= fields or any(_is_record(lines[-n:], fields) for n in range(2, _TITLE_LINES)):
        return
    raise DataError(
        f"{path} is cut short: its last line {lines[-1][-60:]!r} has {found} of {fields} fields "
        "and no end; download it again"
    )


def _is_record(lines: list[str], fields: int) -> bool:
    """One record, with line breaks in its quoted fields."""
    try:
        records = list(csv.reader(lines, strict=True))
    except csv.Error:  # a quote that is not closed
        return False
    return len(records) == 1 and len(records[0]) == fields


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return DataError(f"cannot read {path}: {reason}")
