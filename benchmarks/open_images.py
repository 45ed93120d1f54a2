"""Sampling ten classes out of generated label files of the official size, beside pandas.

    python benchmarks/open_images.py                    # 20 million label rows, some minutes
    python benchmarks/open_images.py --rows 1000000     # a quick look

The files have the form of the v7 release: ids of 16 hexadecimal digits, 20,000 classes of very
different size, four labels an image on average, each verified by humans (of a part of the images by
crowdsourcing) as present (two in five) or absent, and image lists with addresses, titles and
rotation. Each side runs in a process of its own, which says how
long sampling took and how much memory was resident at most, and both must draw the same images.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROWS = 20_000_000
PER_IMAGE = 4  # label rows, on average
CLASSES = 20_000
SHARES = {"train": 0.96, "validation": 0.01, "test": 0.03}
CHUNK = 250_000  # images written at a time
CHOSEN = 10
SEED = 42
SECONDS, GIGABYTES = 60.0, 2.0

Bytes = NDArray[np.uint8]


def constant(text: str, n: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (n, len(text)))


def hexadecimal(numbers: NDArray[np.uint64], digits: int) -> Bytes:
    """(n, digits) characters."""
    shifts = np.arange(4 * (digits - 1), -1, -4, dtype=np.uint64)
    nibbles = (numbers[:, None] >> shifts) & np.uint64(15)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]


def lines(*parts: Bytes) -> bytes:
    return np.concatenate([*parts, constant("\n", len(parts[0]))], axis=1).tobytes()


def chunks(total: int) -> Iterator[int]:
    for start in range(0, total, CHUNK):
        yield min(CHUNK, total - start)


def write_files(folder: Path, rows: int) -> None:
    """Names of the official files; every line of a file's chunk is equally long: no loop in it."""
    from radial.open_images.catalogue import official_files

    files = {what: folder / Path(path).name for what, path in official_files("v7").items()}
    rng = np.random.default_rng(0)
    ranks = rng.permutation(CLASSES)
    shares = 1 / np.arange(1, CLASSES + 1)
    steps = np.cumsum(shares / shares.sum())
    described = ["LabelName,DisplayName\n"]
    described += [f"/m/0{number:05x},Class {number}\n" for number in range(CLASSES)]
    files["classes"].write_text("".join(described))
    for subset, share in SHARES.items():
        with (
            files[f"labels/{subset}"].open("wb") as labels,
            files[f"images/{subset}"].open("wb") as images,
        ):
            labels.write(b"ImageID,Source,LabelName,Confidence\n")
            images.write(
                b"ImageID,Subset,OriginalURL,OriginalLandingURL,License,AuthorProfileURL,Author,"
                b"Title,OriginalSize,OriginalMD5,Thumbnail300KURL,Rotation\n"
            )
            for number, n in enumerate(chunks(int(rows * share) // PER_IMAGE)):
                ids = np.sort(rng.integers(0, 2**64, n, np.uint64, endpoint=False))
                write_labels(labels, ids, rng, steps, ranks, crowd=number % 4 == 3)
                write_images(images, ids, subset, rng)


def write_labels(file, ids, rng, steps, ranks, crowd: bool) -> None:  # type: ignore[no-untyped-def]
    of = np.repeat(ids, rng.integers(1, 2 * PER_IMAGE, len(ids)))
    n = len(of)
    classes = ranks[np.searchsorted(steps, rng.random(n)).clip(max=CLASSES - 1)]
    positive = np.frombuffer(b"01", np.uint8)[(rng.random(n) < 0.4).astype(int)][:, None]
    source = constant(",crowdsource-verification,/m/0" if crowd else ",verification,/m/0", n)
    label = hexadecimal(classes.astype(np.uint64), 5)
    file.write(lines(hexadecimal(of, 16), source, label, constant(",", n), positive))


def write_images(file, ids, subset: str, rng) -> None:  # type: ignore[no-untyped-def]
    n, one = len(ids), hexadecimal(ids, 16)
    page = ",https://www.flickr.com/photos/0123456789/"
    terms = ",https://creativecommons.org/licenses/by/2.0/,https://www.flickr.com/people/x/,"
    turned = np.frombuffer(b"  0.0 90.0180.0270.0", np.uint8).reshape(4, 5)
    rotation = turned[rng.choice(4, n, p=(0.974, 0.01, 0.006, 0.01))]
    author = hexadecimal(rng.integers(0, 2**32, n, np.uint64), 8)
    file.write(
        lines(
            one, constant(f",{subset},https://farm4.staticflickr.com/5555/", n), one,
            constant("_o.jpg" + page, n), one, constant(terms + '"Author, ', n), author,
            constant('","A ""title"", as they are",1234567,0123456789abcdefABCDEF==,', n),
            constant("https://c5.staticflickr.com/5/5555/z.jpg,", n), rotation,
        )
    )  # fmt: skip


def digest(rows: Iterator[tuple[object, ...]]) -> str:
    """Of (label, rank, id, subset, role, rotation, author), sorted."""
    text = hashlib.sha256()
    for row in rows:
        text.update("\t".join(map(str, row)).encode() + b"\n")
    return text.hexdigest()


def by_radial(folder: Path) -> Iterator[tuple[object, ...]]:
    from radial.open_images.catalogue import find_metadata
    from radial.open_images.sampling import Sampling, sample

    settings = Sampling(classes=CHOSEN, release="v7", seed=SEED, temp_directory=folder)
    manifest = sample(find_metadata(folder, release="v7"), settings)
    rows = sorted(manifest.rows, key=lambda row: (row.label, row.rank))
    return ((r.label, r.rank, r.id, r.subset, r.role, r.rotation, r.author) for r in rows)


def by_pandas(folder: Path) -> Iterator[tuple[object, ...]]:
    """What one would write: all of it in memory, a line for each thought."""
    import pandas as pd

    short = {"train": "train", "validation": "val", "test": "test"}
    names = {k: f"oidv7-{short[k]}-annotations-human-imagelabels.csv" for k in SHARES}
    labels = pd.concat([pd.read_csv(folder / names[k], dtype=str).assign(subset=k) for k in SHARES])
    labels = labels[(labels.Confidence == "1") & labels.Source.str.contains("verification")]
    labels = labels.drop_duplicates(["ImageID", "LabelName"])
    single = labels[~labels.ImageID.duplicated(keep=False)]
    counts = (
        single.LabelName.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    )
    chosen = counts[:CHOSEN]
    single = single[single.LabelName.isin(chosen.index)].copy()
    single["order"] = [hashlib.sha256(f"{SEED}/{i}".encode()).hexdigest() for i in single.ImageID]
    single = single.sort_values(["LabelName", "order"])
    single["rank"] = single.groupby("LabelName").cumcount()
    columns = ["ImageID", "Author", "Rotation"]
    lists = folder.glob("*-with-rotation.csv")
    images = pd.concat([pd.read_csv(path, dtype=str, usecols=columns) for path in lists])
    single = single.merge(images.drop_duplicates("ImageID"), on="ImageID", how="left")
    per_class = chosen.min()
    for row in single.itertuples():
        role = "chosen" if row.rank < per_class else "reserve"
        yield (
            row.LabelName, row.rank, row.ImageID, row.subset, role, int(float(row.Rotation)),
            row.Author,
        )  # fmt: skip


SIDES = {"radial": by_radial, "pandas": by_pandas}
IMPORTS = {
    "radial": ("radial.open_images.sampling", "duckdb"),
    "pandas": ("pandas", "pyarrow"),
}


def side(name: str, folder: Path) -> None:
    """In a process of its own: the seconds, the memory, and what came out."""
    for module in IMPORTS[name]:  # not what is measured
        import_module(module)
    began = time.perf_counter()
    rows = list(SIDES[name](folder))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, peak, len(rows), digest(iter(rows))]))


def run(name: str, folder: Path) -> tuple[float, float, int, str]:
    command = [sys.executable, __file__, "--side", name, "--folder", str(folder)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, peak, rows, found = json.loads(output)
    return seconds, peak / 1e9, rows, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="of labels")
    parser.add_argument("--folder", type=Path, help="where to write the files (and remove them)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side(options.side, options.folder)
        return 0
    from measure import record, verdict

    with tempfile.TemporaryDirectory(prefix="radial-benchmark-", dir=options.folder) as name:
        folder = Path(name)
        need, free = 250 * options.rows, shutil.disk_usage(folder).free
        if free < need:
            print(f"{folder} has {free / 1e9:.1f} GB free, {need / 1e9:.1f} GB are needed")
            return 1
        began = time.perf_counter()
        write_files(folder, options.rows)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"{options.rows / 1e6:.3g} million label rows, files of {size / 1e9:.2f} GB, "
            f"written in {time.perf_counter() - began:.0f} s"
        )
        ours, theirs = (run(side, folder) for side in SIDES)
    print("                 radial      pandas   ratio")
    for what, a, b in (("seconds", ours[0], theirs[0]), ("peak memory, GB", ours[1], theirs[1])):
        print(f"{what:15}  {a:6.2f}      {b:6.2f}   {b / a:4.1f}x")
    same = ours[2:] == theirs[2:]
    print(f"{ours[2]:,} images of {CHOSEN} classes: {'the same' if same else 'NOT THE SAME'}")
    verdict(f"seconds ≤ {SECONDS:g}", ours[0], most=SECONDS)
    verdict(f"peak memory in GB ≤ {GIGABYTES:g}", ours[1], most=GIGABYTES)
    sides = dict(zip(SIDES, (ours, theirs)))
    if options.rows == ROWS:
        seconds, peaks = ({name: found[i] for name, found in sides.items()} for i in (0, 1))
        record("open_images", {"seconds": seconds, "peak": peaks})
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
