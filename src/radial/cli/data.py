"""`radial data VERB`: parse, import late, call one function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from radial.open_images.classes import PRESETS
from radial.open_images.rows import SUFFIXES
from radial.terminal import Bars, Parser, dispatch, positive

if TYPE_CHECKING:
    from radial.open_images.fetch import FetchResult

USAGE = """radial data: balanced Open Images subsets, and looks at image folders

usage: radial data VERB [options]

  open-images sample   choose a balanced subset: a manifest
  open-images fetch    download the images of a manifest into class folders
  stats                mean, standard deviation and counts of an image folder
  contact-sheet        one picture with samples of each class

`radial data VERB --help` lists the options of a verb.
"""


def main(arguments: list[str]) -> int:
    return dispatch("data", USAGE, VERBS, arguments)


def open_images(arguments: list[str]) -> int:
    return dispatch("data open-images", USAGE, {"sample": sample, "fetch": fetch}, arguments)


def sample(arguments: list[str]) -> int:
    parser = Parser(
        "data open-images sample",
        "Choose a balanced subset of Open Images V7: images with exactly one human-verified label.",
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="directory, or .csv or .parquet file, to write to")
    add("--preset", choices=PRESETS, help="a published subset")
    add("--classes", type=_classes, help="how many, or names with commas; 10")
    add("--choice", help="largest (as published) or random, of a number of classes")
    add("--minimum", type=positive, help="images that a class must have")
    add("--per-class", type=positive, help="images of each class; as many as the smallest has")
    add("--reserves", type=int, help="further images of each class, for those gone; all there are")
    add("--seed", type=int, help="of the choice; 42")
    add("--exclude-imagenet", action="store_true", help="no synonyms of ImageNet-1K categories")
    add("--exclude-overlapping", action="store_true", help="no kinds or parts of a class taken")
    add("--boxable-only", action="store_true", help="only images of the boxable list")
    add("--subsets", type=_names, help="of train,validation,test; all")
    add("--release", help="boxable (what the paper used) or v7 (larger)")
    add("--metadata", type=Path, metavar="DIR", help="local copies of the official CSV files")
    add("--base", help="URL below which the official files are")
    add("--memory", dest="memory_limit", help="of DuckDB, such as 2GB")
    add("--threads", type=positive, help="of DuckDB")
    options = vars(parser.parse_args(arguments))
    places = {name: options.pop(name) for name in ("out", "preset", "metadata", "base")}
    given = {k: v for k, v in options.items() if v is not None and v is not False}
    path = _manifest_file(places["out"])
    _needs("duckdb", *(("pyarrow",) if path.suffix == ".parquet" else ()))
    from radial.open_images.manifest import write_manifest
    from radial.open_images.metadata import find_metadata
    from radial.open_images.sampling import Sampling, check_classes, preset, sample

    settings = preset(places["preset"], **given) if places["preset"] else Sampling(**given)
    if path.exists():
        raise ValueError(f"{path} is there already: remove it, or choose another --out")
    with Bars() as bar:
        files = find_metadata(
            places["metadata"],
            release=settings.release,
            subsets=settings.subsets,
            boxable_only=settings.boxable_only,
            **({"base": places["base"]} if places["base"] else {}),
            progress=partial(bar, unit="B"),
            check=lambda displays: check_classes(displays, settings),
        )
    manifest = sample(files, settings, tell=_tell)
    write_manifest(path, manifest)
    names = manifest.counts()
    print(f"{len(names)} classes of {manifest.per_class} images: {', '.join(names)}")
    print(f"manifest: {path} (sha256 {manifest.sha256[:12]})")
    print(f"images:   radial data open-images fetch {path} --out {path.parent / 'images'}")
    return 0


def fetch(arguments: list[str]) -> int:
    parser = Parser(
        "data open-images fetch",
        "Download the images of a manifest; again after an interruption goes on.",
    )
    add = parser.add_argument
    add("manifest", type=Path, help="file that sample wrote, or its directory")
    add("--out", type=Path, required=True, help="directory of the class folders")
    add("--size", type=positive, help="shrink images to this short side on arrival, in pixels")
    add("--connections", type=positive, help="at the same time; 16")
    add("--retries", type=int, help="of each image; 5")
    add("--timeout", type=float, help="seconds without an answer; 30")
    add("--base", help="URL of the bucket")
    options = vars(parser.parse_args(arguments))
    manifest, out = options.pop("manifest"), options.pop("out")
    given = {name: value for name, value in options.items() if value is not None}
    from radial.open_images.fetch import FetchSettings, fetch

    with Bars() as bar:
        result = fetch(
            _manifest_file(manifest) if manifest.is_dir() else manifest,
            out,
            FetchSettings(**given),
            tell=_tell,
            progress=lambda now: bar(
                "images", now.done, now.total, note=f"{now.rate / 1e6:.1f} MB/s", left=now.left
            ),
        )
    if not result.complete:
        failed = f"{_images(result.errors)} could not be fetched, such as {result.example}"
        _tell(str(result.example) if result.ended else failed)
        print(f"{result.images:,} of {_images(result.wanted)}; the same command goes on")
        return 1
    print(f"{_images(result.images)}, {result.per_class:,} of each class{_lost(result)}: {out}")
    return 0


def stats(arguments: list[str]) -> int:
    parser = Parser("data stats", "Exact mean and standard deviation of an image folder.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--image-size", type=positive, help="of squares; published figures: 224")
    parser.add_argument("--threads", type=positive, help="that decode; one a core")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all digits")
    options = parser.parse_args(arguments)
    from rich.console import Console

    from radial.data.statistics import folder_statistics, print_statistics
    from radial.files import check_writable, write_atomically

    check_writable(options.json)
    with Bars() as bar:
        found = folder_statistics(
            options.directory,
            image_size=options.image_size,
            threads=options.threads,
            progress=lambda done, total: bar("images", done, total),
        )
    print_statistics(found, Console())
    if options.json is not None:
        import json

        write_atomically(options.json, json.dumps(found.to_dict(), indent=2))
    return 0


def contact_sheet(arguments: list[str]) -> int:
    parser = Parser("data contact-sheet", "One picture with samples of each class.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("contact-sheet.png"), help=".png or .jpg")
    parser.add_argument("--per-class", type=positive, default=8)
    parser.add_argument("--size", type=positive, default=96, help="of a sample, in pixels")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    from radial.data.contact_sheet import contact_sheet
    from radial.files import check_writable

    check_writable(options.out)
    path = contact_sheet(
        options.directory,
        options.out,
        per_class=options.per_class,
        size=options.size,
        seed=options.seed,
    )
    print(f"contact sheet: {path}")
    return 0


def _images(count: int) -> str:
    return f"{count:,} image{'s' * (count != 1)}"


def _lost(result: FetchResult) -> str:
    """What the subset lacks of what was planned, and why."""
    gone = f"{result.gone:,} {'was' if result.gone == 1 else 'were'} gone" if result.gone else ""
    if result.per_class < result.planned:
        why = [f"class {result.limited_by!r} ran out"] if result.limited_by else []
        why += [gone] if gone else []
        return f" ({result.planned:,} planned: {'; '.join(why)})"
    return f"; {gone}, replaced by others" if gone else ""


def _manifest_file(place: Path) -> Path:
    """A file by its suffix; in a directory, the manifest that is there or is to be."""
    if place.suffix in SUFFIXES:
        return place
    found = [place / f"manifest{suffix}" for suffix in SUFFIXES]
    return next((path for path in found if path.is_file()), found[0])


def _classes(text: str) -> int | tuple[str, ...]:
    return int(text) if text.isdecimal() else _names(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _needs(*packages: str) -> None:
    from importlib.util import find_spec

    if missing := [name for name in packages if find_spec(name) is None]:
        raise ValueError(f"{', '.join(missing)} is not installed: pip install 'radial-ssl[data]'")


def _tell(line: str) -> None:
    print(f"radial: {line}", file=sys.stderr)


VERBS: dict[str, Callable[[list[str]], int]] = {
    "open-images": open_images,
    "stats": stats,
    "contact-sheet": contact_sheet,
}
