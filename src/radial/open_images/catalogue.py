"""What Open Images has: its official files, its classes, how they overlap, and published subsets.

``boxable`` is what the paper's tool used: the human-verified labels of the 600 boxable classes
(v5 files). ``v7`` is the larger set: 20,000 classes, 2.7 GB of labels for train alone.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from radial.checks import DataError, one_line
from radial.files import cache_folder
from radial.open_images.manifest import FORBIDDEN, LONGEST, SUBSETS, folded, folder_fault

BASE = "https://storage.googleapis.com/openimages/"
RELEASES = ("boxable", "v7")
LABEL_COLUMNS = ("ImageID", "Source", "LabelName", "Confidence")
CLASS_COLUMNS = ("LabelName", "DisplayName")
IMAGE_COLUMNS = ("ImageID", "OriginalURL", "License", "Author", "Rotation")
PUBLISHED = {10: 4073, 30: 1414, 50: 748, 70: 463, 100: 345}  # images a class, by classes
PRESETS = {f"oiv7-{classes}": (classes, images) for classes, images in PUBLISHED.items()}

# Names in Open Images of ImageNet-1K categories that torchvision lists under another synonym.
OTHER_SYNONYMS = (
    "Binoculars", "Brassiere", "Camel", "Candle", "Chainsaw", "Computer mouse",
    "Filing cabinet", "Golf cart", "Hair dryer", "Hot dog", "Infant bed", "Jeans", "Ladybug",
    "Lighthouse", "Microwave oven", "Mobile phone", "Organ (Musical Instrument)", "Pig",
    "Pitcher (Container)", "Polar bear", "Red panda", "Ruler", "Saxophone", "Sofa bed",
    "Sunglasses", "Swim cap", "Taxi", "Toilet paper", "Volleyball (Ball)",
    "Washing machine", "Waste container",
)  # fmt: skip

_HIERARCHY = "2018_04/bbox_labels_600_hierarchy.json"
_CLASSES = {"boxable": "v5/class-descriptions-boxable.csv", "v7": "v7/oidv7-class-descriptions.csv"}
_LABELS = {
    "boxable": "v5/{}-annotations-human-imagelabels-boxable.csv",
    "v7": "v7/oidv7-{}-annotations-human-imagelabels.csv",
}
_BOXABLE_TRAIN = "2018_04/train/train-images-boxable-with-rotation.csv"
_ALL_TRAIN = "v6/oidv6-train-images-with-labels-with-rotation.csv"

Progress = Callable[[str, int, int | None], None]  # file, bytes there, bytes in all where known
Overlaps = Mapping[str, frozenset[str]]  # the labels that each label shares its pictures with


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
    hierarchy: Path | None = None  # where overlaps are asked for


def official_files(
    release: str = "boxable",
    subsets: Iterable[str] = SUBSETS,
    *,
    boxable_only: bool = False,
    hierarchy: bool = False,
) -> dict[str, str]:
    """Paths of the files below the base URL, by what they are.

    >>> official_files(subsets=["test"])["labels/test"]
    'v5/test-annotations-human-imagelabels-boxable.csv'
    """
    check_release(release)
    files = {"classes": _CLASSES[release]}
    if hierarchy:
        files["hierarchy"] = _HIERARCHY
    for subset in check_subsets(subsets):
        short = "val" if (release, subset) == ("v7", "validation") else subset
        files[f"labels/{subset}"] = _LABELS[release].format(short)
        files[f"images/{subset}"] = f"2018_04/{subset}/{subset}-images-with-rotation.csv"
        if subset == "train":
            boxable = boxable_only or release == "boxable"
            files["images/train"] = _BOXABLE_TRAIN if boxable else _ALL_TRAIN
    return files


def find_metadata(
    directory: Path | str | None = None,
    *,
    release: str = "boxable",
    subsets: Iterable[str] = SUBSETS,
    boxable_only: bool = False,
    hierarchy: bool = False,
    base: str = BASE,
    cache: Path | str | None = None,
    progress: Progress | None = None,
    check: Callable[[Mapping[str, str], Overlaps], object] | None = None,
) -> Metadata:
    """The files that sampling needs: in ``directory``, or downloaded once into the cache.

    Args:
        directory: With local copies under their official names, as they are or as ``.gz``,
            directly in it or below it as on the server (``v5/…``). Nothing is downloaded then.
        release: "boxable" or "v7".
        subsets: Of train, validation, test.
        boxable_only: The image list of train with boxable images only.
        hierarchy: The hierarchy of the 600 boxable classes, too, for `read_overlaps`.
        base: URL below which the official paths are.
        cache: RADIAL_DATA by default, else ``~/.cache/radial``; the files go to ``open-images/``
            in it. A download that broke off goes on where it was.
        progress: Called as a download proceeds.
        check: Called with the display name of each label, and what overlaps, as soon as that is
            known, before the large files come; an exception ends it all.
    """
    subsets = check_subsets(subsets)
    files = official_files(release, subsets, boxable_only=boxable_only, hierarchy=hierarchy)
    if directory is not None:
        found = _local(Path(directory).expanduser(), files)
    else:
        root = Path(cache or cache_folder()).expanduser()
        small = {what: name for what, name in files.items() if "/" not in what}
        found = _downloaded(base, root / "open-images", small, progress)
    if check is not None:
        check(read_classes(found["classes"]), read_overlaps(found.get("hierarchy")))
    if directory is None:
        found = _downloaded(base, root / "open-images", files, progress)
    return Metadata(
        release=release,
        classes=found["classes"],
        hierarchy=found.get("hierarchy"),
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
            f"{directory} lacks {len(missing)} of {len(files)} files (as they are, or .gz): "
            f"{', '.join(missing)}"
        )
    return found


def _downloaded(
    base: str, root: Path, files: Mapping[str, str], progress: Progress | None
) -> dict[str, Path]:
    from radial.open_images.http import Client

    found, client = {what: root / name for what, name in files.items()}, Client()
    for what, path in found.items():
        if path.is_file():
            continue

        def tell(done: int, total: int | None, name: str = path.name) -> None:
            if progress is not None:
                progress(name, done, total)

        client.download(f"{base.rstrip('/')}/{files[what]}", path, progress=tell)
        try:
            _check_file(what, path)
        except DataError:  # a server's error page, say: not to be taken for the file next time
            path.unlink(missing_ok=True)
            raise
    client.close()
    return found


def _check_file(what: str, path: Path) -> None:
    if what == "classes":
        read_classes(path)
    elif what == "hierarchy":
        read_overlaps(path)
    else:
        check_table(path, LABEL_COLUMNS if what.startswith("labels") else IMAGE_COLUMNS)


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
    """All columns of a CSV file, by its first line; DuckDB looks at the others."""
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
    return header


def _first_line(path: Path) -> str:
    with _open(path) as file:
        line = file.readline(1 << 16).rstrip("\r\n")
    if not line:
        raise DataError(f"{path} is empty, or begins with an empty line")
    if line.lstrip().startswith("<"):
        raise DataError(f"{path} is HTML or XML, not CSV: it begins with {line.strip()[:60]!r}")
    return line


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                yield file
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise DataError(f"cannot read {path}: {reason}") from error


def read_classes(path: Path) -> dict[str, str]:
    """Display name of each label, sorted by label; the file may have a header (v7) or not (v5)."""
    first = _first_line(path)
    names: dict[str, str] = {}
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
    if not names:
        raise DataError(f"{path} has no classes: its first line is {first[:80]!r}")
    return dict(sorted(names.items()))


def read_overlaps(path: Path | None) -> Overlaps:
    """Which labels share their pictures, by the official hierarchy; none without a file.

    A class overlaps with the classes above and below it: those that it is a kind or a part of,
    and its own kinds and parts. A kind also has the parts of what it is a kind of: a taxi, being
    a vehicle, has wheels. The root, which is everything, counts for nothing. Classes that are not
    among the 600 boxable ones overlap with none.
    """
    if path is None:
        return {}
    pairs: set[tuple[str, str]] = set()

    def walk(node: Mapping[str, Any], above: tuple[str, ...], parts: tuple[str, ...]) -> None:
        """``parts`` are those of the classes that the node is a kind of."""
        label = node["LabelName"]
        pairs.update((label, other) for other in (*above, *parts))
        own = node.get("Part", [])
        parts += tuple(one for part in own for one in _labels_in(part))
        for kind in node.get("Subcategory", []):
            walk(kind, (*above, label), parts)
        for part in own:
            walk(part, (*above, label), ())

    try:
        with _open(path) as file:
            root = json.load(file)
        for node in root["Subcategory"]:
            walk(node, (), ())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not the hierarchy of Open Images: it is damaged") from None
    related: dict[str, set[str]] = {}
    for one, other in pairs:
        if one != other:
            related.setdefault(one, set()).add(other)
            related.setdefault(other, set()).add(one)
    return {label: frozenset(others) for label, others in related.items()}


def _labels_in(node: Mapping[str, Any]) -> Iterator[str]:
    yield node["LabelName"]
    for below in (*node.get("Subcategory", []), *node.get("Part", [])):
        yield from _labels_in(below)


def preset_classes(name: str) -> tuple[int, int]:
    """Classes of a published subset and images a class.

    >>> preset_classes("oiv7-10")
    (10, 4073)
    """
    if name not in PRESETS:
        raise DataError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]


def in_imagenet(name: str) -> bool:
    """Whether a class name is, as a whole, a synonym of an ImageNet-1K category.

    Case, spaces and hyphens do not count. Dog is none: ImageNet-1K has breeds only.
    """
    return _bare(name) in _imagenet()


@lru_cache(maxsize=1)
def _imagenet() -> frozenset[str]:
    from torchvision.models import ResNet50_Weights

    listed = ResNet50_Weights.IMAGENET1K_V1.meta["categories"]
    return frozenset(map(_bare, (*listed, *OTHER_SYNONYMS)))


def _bare(name: str) -> str:
    return re.sub(r"[\s_'-]+", "", name).casefold()


def class_names(displays: Mapping[str, str]) -> dict[str, str]:
    """A name for each label that is a folder's name and nobody else's.

    Mostly the display name as it is. What cannot be in a folder's name becomes ``_``, and a very
    long one is cut. The label comes behind a name that several labels share (case and accents
    aside), that a name with its label has already, or that cannot be a folder's. It depends on
    the class list only, never on which classes are chosen.

    >>> class_names({"/m/01": "Jaguar", "/m/02": "jaguar", "/m/03": "AC/DC"})
    {'/m/01': 'Jaguar (m-01)', '/m/02': 'jaguar (m-02)', '/m/03': 'AC_DC'}
    """
    plain = {label: _folder(display) for label, display in displays.items()}
    labelled = {label for label, name in plain.items() if folder_fault(name) is not None}
    while True:
        names = {k: _with_label(name, k) if k in labelled else name for k, name in plain.items()}
        shared = Counter(map(folded, names.values()))
        more = {label for label, name in names.items() if shared[folded(name)] > 1} - labelled
        if not more:
            return names
        labelled |= more


def _folder(display: str) -> str:
    text = unicodedata.normalize("NFC", display)
    bad = f"/\\{FORBIDDEN}"
    text = "".join("_" if c in bad or not c.isprintable() else c for c in text)
    return _cut(" ".join(text.split()).lstrip(". "), LONGEST)


def _with_label(name: str, label: str) -> str:
    short = label.strip("/").replace("/", "-")
    behind = f" ({short})"
    name = _cut(name, LONGEST - len(behind.encode()))
    return f"{name}{behind}" if name else short


def _cut(name: str, size: int) -> str:
    """At most so many bytes, whole letters, and nothing at the end that a folder cannot end in."""
    return name.encode()[: max(0, size)].decode(errors="ignore").rstrip(". ")
