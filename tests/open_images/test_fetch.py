"""Fetching from a bucket that misbehaves: balanced, whole, and the same files every time."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from open_images_files import read_rows, write_metadata
from open_images_server import (
    LOSSES,
    Bucket,
    address,
    bucket_and_manifest,
    check,
    die_at,
    expected,
    folders,
    jpeg,
    ran_out,
    rows_of,
    serving,
    settings,
    small_bucket,
    tree,
)
from radial.open_images.catalogue import find_metadata, official_files
from radial.open_images.fetch import FetchResult, Reading, fetch
from radial.open_images.manifest import Manifest, read_manifest, write_manifest
from radial.open_images.sampling import Sampling, sample

CLASSES = 9
PASSING = (
    "500 once", "429 once", "cut once", "hang up once", "html once", "cut jpeg once",
    "empty once", "chunked", "moved once",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], dict[str, str]]:
    """The bucket, label files and all images in them, and what goes wrong with one in seven."""
    folder = tmp_path_factory.mktemp("official")
    write_metadata(folder, images=4800, classes=CLASSES, skew=0.15)
    files, draw, rules = {}, random.Random(0), {}
    pictures = [jpeg(number) for number in range(997)]
    for what, name in official_files().items():
        files[f"/{name}"] = (folder / Path(name).name).read_bytes()
        kind, _, subset = what.partition("/")
        for row in read_rows(folder, name)[1:] if kind == "labels" else ():
            files.setdefault(f"/{subset}/{row[0]}.jpg", pictures[int(row[0], 16) % 997])
    for path in files:
        kind = draw.random()
        if path.endswith(".csv"):
            rules[path] = ("500 once", "cut once", "half once", "hang up once")[len(rules) % 4]
        elif kind < 0.03:
            rules[path] = draw.choice(LOSSES)
        elif kind < 0.15:
            rules[path] = draw.choice(PASSING)
    return files, rules


def drawn(server: Bucket, path: Path) -> Manifest:
    """What `radial data open-images sample` does, with the label files of the server."""
    metadata = find_metadata(base=server.base, cache=path.parent)
    manifest = sample(metadata, Sampling(classes=CLASSES, threads=1))
    write_manifest(path, manifest)
    return manifest


class Killed:
    """Fetches in a process of its own that is killed."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["radial.open_images.fetch"])
        forkserver.ensure_running()  # it imports while other things happen

    def start(self, target: object, *arguments: object) -> multiprocessing.Process:
        process = self.context.Process(target=target, args=arguments)
        process.start()
        return process


@pytest.fixture(scope="module")
def killed() -> Killed:
    return Killed()


def test_the_same_bytes_whatever_happens(
    full: tuple[dict[str, bytes], dict[str, str]],
    tmp_path: Path,
    killed: Killed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From label files to images, all from a server that misbehaves.

    With 32 connections; with 1, in another directory; and killed again and again.
    """
    files, rules = full
    source = tmp_path / "first" / "sample.csv"
    seen: list[Reading] = []
    with serving(files, rules) as server:
        manifest = drawn(server, source)
        tables = [path for path in files if path.endswith(".csv")]
        assert len(tables) == 7
        assert all(server.requests[path] == 2 for path in tables)
        assert server.ranges  # one that was cut went on where it was
        server.most = 0
        result = fetch(source, tmp_path / "a", settings(server), progress=seen.append)
        assert 8 < server.most <= 32
    check(tmp_path / "a", manifest, files, rules)
    wanted = expected(manifest, rules)
    per_class, planned = len(wanted["Car"]), manifest.per_class
    assert CLASSES * planned >= 2000
    assert {row.rotation for row in manifest.rows} == {0, 90, 180, 270}
    gone = sum(row.role == "gone" for row in read_manifest(tmp_path / "a" / "manifest.csv").rows)
    assert result == FetchResult(
        complete=True, images=9 * per_class, wanted=9 * per_class, per_class=per_class,
        planned=planned, gone=gone, limited_by=ran_out(manifest, rules),
    )  # fmt: skip
    assert per_class < planned  # a class ran out
    assert gone > 30
    assert seen[-1] == Reading(9 * per_class, 9 * per_class, seen[-1].rate, 0.0)
    totals = [now.total for now in seen]
    assert totals == sorted(totals, reverse=True)
    assert max(now.rate for now in seen) > 0

    with serving(files, rules) as server, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # half of the time, one after the other
        again = drawn(server, tmp_path / "second" / "sample.csv")
        assert again.sha256 == manifest.sha256
        server.most = 0
        one = settings(server, connections=1)
        assert fetch(source, tmp_path / "elsewhere" / "b", one) == result
        assert server.most == 1
    assert tree(tmp_path / "elsewhere" / "b") == tree(tmp_path / "a")

    draw, kills = random.Random(1), 0
    with serving(files, rules) as server:
        for _ in range(5):
            server.hold_after = server.requests.total() + draw.randrange(20, 300)
            process = killed.start(fetch, source, tmp_path / "c", settings(server, connections=8))
            while server.requests.total() <= server.hold_after:  # it cannot be done before
                time.sleep(0.005)
            process.kill()
            process.join()
            kills += process.exitcode == -9
        server.hold_after = None
        assert fetch(source, tmp_path / "c", settings(server)) == result
        calm = sum(count for path, count in server.requests.items() if path not in rules)
        assert calm <= 9 * planned + kills * 100  # what has arrived is not fetched again
    assert kills == 5
    assert tree(tmp_path / "c") == tree(tmp_path / "a")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Path, Bucket, Manifest]]:
    with small_bucket(tmp_path / "sample.csv") as (server, manifest):
        yield tmp_path / "sample.csv", server, manifest


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_change_to_the_disk(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path, killed: Killed, stride: int
) -> None:
    source, server, manifest = small
    server.rules = {rows_of(manifest, "Dog")[1]: "404", rows_of(manifest, "Cat")[3]: "410"}
    how = settings(server, connections=2)
    fetch(source, tmp_path / "whole", how)
    check(tmp_path / "whole", manifest, server.files, server.rules)
    whole = tree(tmp_path / "whole")
    step, alive = 1, True
    while alive:
        out = tmp_path / str(step)
        process = killed.start(die_at, step, source, out, how)
        process.join()
        assert process.exitcode in (0, 9)
        alive = process.exitcode == 9
        assert fetch(source, out, how).complete
        assert tree(out) == whole, step
        step += stride
    assert step > 40


def test_each_step_of_many_resumed_fetches(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path, killed: Killed
) -> None:
    """The manifest lies in the directory itself, and each process gets only a little further."""
    source, server, manifest = small
    fetch(source, tmp_path / "whole", settings(server))
    out = tmp_path / "out"
    write_manifest(out / "manifest.csv", manifest)
    how, deaths = settings(server, connections=2), 0
    while deaths < 50:
        process = killed.start(die_at, 18, out / "manifest.csv", out, how)
        process.join()
        if process.exitcode == 0:
            break
        deaths += 1
    assert 3 < deaths < 50
    assert tree(out) == tree(tmp_path / "whole")
    assert fetch(out / "manifest.csv", out, settings(server)).complete
    assert fetch(source, out, settings(server)).complete


def test_images_that_always_fail_leave_it_incomplete_until_the_server_recovers(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    fetch(source, tmp_path / "never failed", settings(server))
    dogs = rows_of(manifest, "Dog")
    server.rules = {dogs[0]: "500", dogs[2]: "cut", rows_of(manifest, "Cat")[1]: "hang up"}
    server.requests.clear()
    result = fetch(source, tmp_path / "a", settings(server, retries=2, connections=1))
    assert result == FetchResult(
        complete=False, images=9, wanted=12, per_class=4, planned=4, gone=0, errors=3,
        example=result.example,
    )  # fmt: skip
    assert result.example is not None
    assert result.example.startswith(server.base)
    assert all(server.requests[path] == 3 for path in server.rules)  # once, and two retries
    assert not (tmp_path / "a" / "manifest.csv").exists()
    assert sum(len(list(folder.iterdir())) for folder in folders(tmp_path / "a")) == 9

    server.recovered = True
    server.requests.clear()
    told: list[str] = []
    assert fetch(source, tmp_path / "a", settings(server), tell=told.append).complete
    assert sorted(server.requests) == sorted(server.rules)
    assert told == ["9 of 12 images are there already"]
    assert tree(tmp_path / "a") == tree(tmp_path / "never failed")


def test_a_complete_fetch_is_recognised_and_a_lost_image_repaired(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    out = tmp_path / "out"
    server.rules = {rows_of(manifest, "Dog")[1]: "404"}
    result = fetch(source, out, settings(server))
    before = tree(out)
    server.requests.clear()
    for given in (source, out / "manifest.csv"):
        assert fetch(given, out, settings(server)) == result
        assert not server.requests
        assert not (out / ".fetch").exists()
    lost = next((out / "Dog").iterdir())
    for given in (source, out / "manifest.csv"):
        lost.unlink()
        server.requests.clear()
        assert fetch(given, out, settings(server)) == result
        assert sum(server.requests.values()) == 1
        assert tree(out) == before


def test_a_final_manifest_gives_the_same_images_elsewhere(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    server.rules = {rows_of(manifest, "Dog")[1]: "404", rows_of(manifest, "Cat")[0]: "html"}
    assert fetch(source, tmp_path / "a", settings(server)).per_class == 3
    server.recovered = True  # what was gone stays gone
    result = fetch(tmp_path / "a" / "manifest.csv", tmp_path / "b", settings(server))
    assert (result.per_class, result.planned) == (3, 4)
    one, other = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert one.pop("manifest.csv.json") != other.pop("manifest.csv.json")
    assert one == other


def test_turned_and_shrunk_images(tmp_path: Path) -> None:
    files, manifest = bucket_and_manifest({"Cat": 40}, 40)
    files = {path: jpeg(number, (48, 32)) for number, path in enumerate(files)}
    write_manifest(tmp_path / "sample.csv", manifest)
    with serving(files) as server:
        fetch(tmp_path / "sample.csv", tmp_path / "as they came", settings(server))
        fetch(tmp_path / "sample.csv", tmp_path / "small", settings(server, size=16))
    turned = 0
    for row in manifest.rows:
        with Image.open(io.BytesIO(files[address(row)])) as image:
            wanted = np.rot90(np.asarray(image, float), row.rotation // 90)
        with Image.open(tmp_path / "as they came" / row.path) as image:
            assert np.abs(np.asarray(image, float) - wanted).mean() < 3
        with Image.open(tmp_path / "small" / row.path) as image:
            found = np.asarray(image, float)
        assert found.shape == ((24, 16, 3) if row.rotation in (90, 270) else (16, 24, 3))
        means = wanted.reshape(len(found), 2, -1, 2, 3).mean((1, 3))
        assert np.abs(found - means).mean() < 12
        turned += row.rotation != 0
    assert turned == 3
