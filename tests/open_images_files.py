"""Metadata files of Open Images in their official form, of any size, and the plain truth in them.

Not a test: what tests of sampling, fetching and commands are tried on, as no official file is at
hand. ``write_metadata`` writes the files; ``plain_sample`` samples them in the most obvious way.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import random
from collections.abc import Iterable
from pathlib import Path

from radial.open_images.catalogue import official_files

NAMES = (
    "Person", "Tree", "Human face", "Car", "Flower", "Taxi", "Kitchen & dining room table",
    "Organ (Musical Instrument)", "Pretzel", "Café", "Ski", "Egg (Food)",
)  # fmt: skip
AWKWARD = ("Jaguar", "AC/DC", 'He said "hi", twice', "jaguar", ".hidden", "..", "Tab\there")
LICENSE = "https://creativecommons.org/licenses/by/2.0/"
IMAGE_HEADER = (
    "ImageID,Subset,OriginalURL,OriginalLandingURL,License,AuthorProfileURL,Author,Title,"
    "OriginalSize,OriginalMD5,Thumbnail300KURL,Rotation"
)
SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}


def label_of(number: int) -> str:
    return f"/m/0{number:04x}_"


def write_metadata(
    folder: Path,
    *,
    images: int = 2000,
    classes: int = 12,
    release: str = "boxable",
    seed: int = 0,
    missing: float = 0.02,
    order: int | None = None,
    compress: bool = False,
    skew: float = 1.0,
) -> Path:
    """Files of a release in ``folder``, and both image lists of train.

    About half of the images have one positive label, the others none or several. There are
    negatives, labels verified twice, rows of machines in the v7 form, images that no list has
    (a share ``missing``), images without labels, rotations as the lists write them, and titles
    with commas, quotes and line breaks. ``order`` permutes the rows, and changes nothing else.
    The classes are equally large where ``skew`` is 0, very different where it is 1.
    """
    draw = random.Random(seed)
    names = [*NAMES, *(AWKWARD if release == "v7" else ())]
    names = (names + [f"Thing {number}" for number in range(classes)])[:classes]
    weights = [1 / (number + 1) ** skew for number in range(classes)]
    labels: dict[str, list[str]] = {subset: [] for subset in SHARES}
    lists: dict[str, list[str]] = {subset: [] for subset in SHARES}
    boxable: list[str] = []
    for _ in range(images):
        one = f"{draw.getrandbits(64):016x}"
        subset = draw.choices(list(SHARES), list(SHARES.values()))[0]
        labels[subset] += _labels_of(one, draw, weights, machines=release == "v7")
        row = _image_row(one, subset, draw)
        if draw.random() >= missing:
            lists[subset].append(row)
            if draw.random() < 0.8:
                boxable.append(row) if subset == "train" else None
    folder.mkdir(parents=True, exist_ok=True)
    person, tree, face, car, flower, taxi = ({"LabelName": label_of(n)} for n in range(6))
    person["Part"], car["Subcategory"] = [face], [taxi]
    above = {"LabelName": "/m/0bl9f", "Subcategory": [person, tree, car, flower]}
    (folder / "bbox_labels_600_hierarchy.json").write_text(json.dumps(above))
    files = official_files(release) | {"images/boxable": official_files()["images/train"]}
    lists["boxable"] = lists["train"] if release == "boxable" else boxable
    header = "LabelName,DisplayName\n" if release == "v7" else ""
    described = [_csv((label_of(number), name)) for number, name in enumerate(names)]
    for what, path in files.items():
        kind, _, subset = what.partition("/")
        if kind == "classes":
            head, rows = header, described
        elif kind == "labels":
            head, rows = "ImageID,Source,LabelName,Confidence\n", labels[subset]
        else:
            head, rows = f"{IMAGE_HEADER}\n", lists[subset]
        if order is not None:
            rows = random.Random(order).sample(rows, len(rows))
        _write(folder / Path(path).name, head + "".join(rows), compress)
    return folder


def _labels_of(one: str, draw: random.Random, weights: list[float], machines: bool) -> list[str]:
    numbers = range(len(weights))
    positive = set(draw.choices(numbers, weights, k=draw.choices((0, 1, 2, 4), (1, 6, 3, 1))[0]))
    negative = set(draw.choices(numbers, k=draw.randrange(3))) - positive
    rows = []
    for number in sorted(positive | negative):
        value = int(number in positive)
        rows.append(f"{one},verification,{label_of(number)},{value}\n")
        if draw.random() < 0.1:
            rows.append(f"{one},crowdsource-verification,{label_of(number)},{value}\n")
    for number in draw.choices(numbers, k=2) if machines else ():
        value = draw.choice(("1", "0.7", "1.0"))
        rows.append(f"{one},machine,{label_of(number)},{value}\n")
    return rows


def _image_row(one: str, subset: str, draw: random.Random) -> str:
    title = draw.choice(("Plain", "a, b", 'The "best", they say', "two\nlines", "naïve ☃", ""))
    author = draw.choice(("Ann Other", 'J. "Jo" Doe', "Müller, Max", "李", "Tab\tbed"))
    rotation = draw.choices(("0.0", "", "nan", "90.0", "180", "270.0"), (80, 5, 5, 4, 3, 3))[0]
    url = f"https://farm1.staticflickr.com/{draw.randrange(9999)}/{one}_o.jpg"
    return _csv(
        (one, subset, url, f"{url}/page", LICENSE, "https://www.flickr.com/people/x/", author,
         title, str(draw.randrange(10**7)), "md5==", "", rotation)
    )  # fmt: skip


def _csv(fields: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def _write(path: Path, text: str, compress: bool) -> None:
    if compress:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text, encoding="utf-8")


def read_rows(folder: Path, name: str) -> list[list[str]]:
    with (folder / Path(name).name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def plain_singles(
    folder: Path, release: str = "boxable", subsets: Iterable[str] = SHARES
) -> dict[str, list[tuple[str, str]]]:
    """(id, subset) of the images with one human positive label, by label: sets and loops."""
    positive: dict[str, set[str]] = {}
    where: dict[str, str] = {}
    for subset in subsets:
        rows = read_rows(folder, official_files(release)[f"labels/{subset}"])[1:]
        for one, source, label, confidence in rows:
            if "verification" in source and float(confidence) == 1:
                positive.setdefault(one, set()).add(label)
                where[one] = subset
    singles: dict[str, list[tuple[str, str]]] = {}
    for one, labels in positive.items():
        if len(labels) == 1:
            singles.setdefault(labels.pop(), []).append((one, where[one]))
    return singles


def plain_sample(
    folder: Path, *, classes: int, seed: int = 42, release: str = "boxable"
) -> list[tuple[object, ...]]:
    """(id, subset, label, rank, role, rotation, license, author, url), by label and rank."""
    singles = plain_singles(folder, release)
    largest = sorted(singles, key=lambda label: (-len(singles[label]), label))[:classes]
    n = min(len(singles[label]) for label in largest)
    about = {}
    for subset in SHARES:
        for row in read_rows(folder, official_files(release)[f"images/{subset}"])[1:]:
            about[row[0]] = (
                int(float(row[11] or 0)) if row[11] != "nan" else 0, row[4],
                row[6].replace("\t", " "), row[2],
            )  # fmt: skip
    table: list[tuple[object, ...]] = []
    for label in sorted(largest):
        order = sorted(
            singles[label], key=lambda one: hashlib.sha256(f"{seed}/{one[0]}".encode()).hexdigest()
        )
        for rank, (one, subset) in enumerate(order):
            role = "chosen" if rank < n else "reserve"
            table.append((one, subset, label, rank, role, *about.get(one, (0, "", "", ""))))
    return table
