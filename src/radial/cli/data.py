"""`radial data VERB`: parse, import late, call one function."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from radial.checks import needs
from radial.cli.terminal import NAMES, NUMBER, POSITIVE, WHOLE, Bars, Commands, Parser, Run, warn
from radial.open_images.catalogue import PRESETS
from radial.open_images.manifest import SUFFIXES

if TYPE_CHECKING:
    from radial.open_images.fetch import FetchResult


def sample(parser: Parser) -> Run:
    add = parser.add_argument
    add("--out", type=Path, required=True, help="directory, or .csv or .parquet file, to write to")
    add("--preset", choices=PRESETS, help="a published subset")
    add("--classes", type=_classes, help="how many, or names with commas; 10")
    add("--choice", help="largest (as published) or random, of a number of classes")
    add("--minimum", type=POSITIVE, metavar="N", help="images that a class must have")
    add("--per-class", type=POSITIVE, metavar="N", help="of each class; the smallest's")
    add("--reserves", type=WHOLE, metavar="N", help="more of each class, for those gone; all")
    add("--seed", type=WHOLE, metavar="N", help="of the choice; 42")
    add("--exclude-imagenet", action="store_true", help="no synonyms of ImageNet-1K categories")
    add("--exclude-overlapping", action="store_true", help="no kinds or parts of a class taken")
    add("--boxable-only", action="store_true", help="only images of the boxable list")
    add("--subsets", type=NAMES, help="of train,validation,test; all")
    add("--release", help="boxable (what the paper used) or v7 (larger)")
    add("--metadata", type=Path, metavar="DIR", help="local copies of the official CSV files")
    add("--base", help="URL below which the official files are")
    add("--memory", dest="memory_limit", help="of DuckDB, such as 2GB")
    add("--threads", type=POSITIVE, metavar="N", help="of DuckDB")
    return _sample


def _sample(options: Namespace) -> int:
    asked = vars(options)
    places = {name: asked.pop(name) for name in ("out", "preset", "metadata", "base")}
    given = {k: v for k, v in asked.items() if v is not None and v is not False}
    path = _manifest_file(places["out"])
    needs(
        "data",
        "duckdb",
        "filelock",
        "urllib3",
        *(("pyarrow",) if path.suffix == ".parquet" else ()),
    )
    from radial.open_images.catalogue import find_metadata
    from radial.open_images.manifest import write_manifest
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
            hierarchy=settings.exclude_overlapping,
            **({"base": places["base"]} if places["base"] else {}),
            progress=partial(bar, unit="B"),
            check=lambda displays, overlaps: check_classes(displays, settings, overlaps),
        )
    manifest = sample(files, settings, tell=warn)
    write_manifest(path, manifest)
    names = manifest.counts()
    print(f"{len(names)} classes of {manifest.per_class} images: {', '.join(names)}")
    print(f"manifest: {path} (sha256 {manifest.sha256[:12]})")
    print(f"images:   radial data open-images fetch {path} --out {path.parent / 'images'}")
    return 0


def fetch(parser: Parser) -> Run:
    add = parser.add_argument
    add("manifest", type=Path, help="file that sample wrote, or its directory")
    add("--out", type=Path, required=True, help="directory of the class folders")
    add("--size", type=POSITIVE, metavar="N", help="short side to shrink to on arrival")
    add("--connections", type=POSITIVE, metavar="N", help="at the same time; 16")
    add("--retries", type=WHOLE, metavar="N", help="of each image; 5")
    add("--timeout", type=NUMBER, metavar="X", help="seconds without an answer; 30")
    add("--base", metavar="URL", help="URL of the bucket")
    return _fetch


def _fetch(options: Namespace) -> int:
    asked = vars(options)
    manifest, out = asked.pop("manifest"), asked.pop("out")
    given = {name: value for name, value in asked.items() if value is not None}
    needs("data", "filelock", "urllib3")
    from radial.open_images.fetch import FetchSettings, fetch

    with Bars() as bar:
        result = fetch(
            _manifest_file(manifest) if manifest.is_dir() else manifest,
            out,
            FetchSettings(**given),
            tell=warn,
            progress=lambda now: bar(
                "images", now.done, now.total, note=f"{now.rate / 1e6:.1f} MB/s", left=now.left
            ),
        )
    if not result.complete:
        failed = f"{_images(result.errors)} could not be fetched, such as {result.example}"
        warn(str(result.example) if result.ended else failed)
        print(f"{result.images:,} of {_images(result.wanted)}; the same command goes on")
        return 1
    print(f"{_images(result.images)}, {result.per_class:,} of each class{_lost(result)}: {out}")
    return 0


def stats(parser: Parser) -> Run:
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR")
    add("--image-size", type=POSITIVE, metavar="N", help="of squares; published figures: 224")
    add("--threads", type=POSITIVE, metavar="N", help="that decode; one a core")
    add("--json", type=Path, metavar="FILE", help="write all digits")
    return _stats


def _stats(options: Namespace) -> int:
    from rich.console import Console

    from radial.data.statistics import folder_statistics, print_statistics
    from radial.files import check_writable, write_json

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
        write_json(options.json, found.to_dict())
    return 0


def contact_sheet(parser: Parser) -> Run:
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR")
    picture = Path("contact-sheet.png")
    add("--out", type=Path, metavar="FILE", default=picture, help=f".png or .jpg ({picture})")
    add("--per-class", type=POSITIVE, metavar="N", default=8, help="samples of each class (8)")
    add("--size", type=POSITIVE, metavar="N", default=96, help="of a sample, in pixels (96)")
    add("--seed", type=WHOLE, metavar="N", default=0, help="of the choice of samples (0)")
    return _contact_sheet


def _contact_sheet(options: Namespace) -> int:
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
    return int(text) if text.isdecimal() else NAMES(text)


OPEN_IMAGES: Commands = {
    "sample": ("choose a balanced subset of images with one human-verified label", sample),
    "fetch": ("download the images of a manifest; again: goes on", fetch),
}
COMMANDS: Commands = {
    "open-images": ("balanced subsets of Open Images V7: sample, fetch", OPEN_IMAGES),
    "stats": ("exact mean, standard deviation and counts of an image folder", stats),
    "contact-sheet": ("one picture with samples of each class", contact_sheet),
}
