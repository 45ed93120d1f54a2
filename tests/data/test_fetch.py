"""Fetching from a bucket that misbehaves: balanced, whole, and the same files every time."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from open_images_server import (
    LOSSES,
    Bucket,
    address,
    bucket_and_manifest,
    die_at,
    expected,
    jpeg,
    serving,
    tree,
)  # fmt: skip
from PIL import Image

from radial.data import DataError
from radial.data.open_images import arriving, workers
from radial.data.open_images.fetch import FetchResult, FetchSettings, Progress, fetch
from radial.data.open_images.manifest import Manifest, Row, read_manifest, write_manifest
from radial.data.open_images.plan import Plan

NAMES = ("Building", "Clothing", "Flower", "Food", "Human face", "Plant", "Toy", "Tree", "Vehicle")
SIZES = {name: 200 + 14 * number for number, name in enumerate(NAMES)}  # 2,304 images
CHOSEN = 200
PASSING = (
    "500 once", "429 once", "cut once", "hang up once", "html once", "cut jpeg once",
    "empty once", "slow", "chunked", "moved once",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(scope="module")
def full() -> tuple[dict[str, bytes], Manifest, dict[str, str]]:
    """The bucket, its manifest, and what goes wrong: a third of the images are affected."""
    files, manifest = bucket_and_manifest(SIZES, CHOSEN)
    draw, rules = random.Random(0), {}
    for row in manifest.rows:
        kind = draw.random()
        if kind < 0.03:
            rules[address(row)] = draw.choice(LOSSES)
        elif kind < 0.15:
            rules[address(row)] = draw.choice(PASSING)
    return files, manifest, rules


def settings(server: Bucket, **changes: object) -> FetchSettings:
    quick = FetchSettings(base=server.base, backoff=0.002, timeout=10.0, connections=32)
    return replace(quick, **changes)


def check(out: Path, manifest: Manifest, files: dict[str, bytes], rules: dict[str, str]) -> None:
    """The directory holds the subset by its definition, and the manifest says so."""
    final, wanted = read_manifest(out / "manifest.csv"), expected(manifest, rules)
    found = {path.name: sorted(file.stem for file in path.iterdir()) for path in folders(out)}
    assert found == {name: sorted(row.id for row in rows) for name, rows in wanted.items()}
    assert len({len(names) for names in found.values()}) == 1
    for name, rows in wanted.items():
        for row in rows:
            content = (out / name / f"{row.id}.jpg").read_bytes()
            if not row.rotation:
                assert content == files[address(row)]
            with Image.open(io.BytesIO(content)) as image:
                image.load()
    chosen = {row.id for rows in wanted.values() for row in rows}
    assert {row.id for row in final.rows if row.role == "chosen"} == chosen
    for before, after in zip(manifest.rows, final.rows, strict=True):
        assert after == before._replace(role=after.role)
        lost = rules.get(address(after)) in LOSSES
        last = max(row.rank for row in wanted[after.class_name])
        if after.rank <= last:
            assert after.role == ("gone" if lost else "chosen")
        else:
            assert after.role == ("cut" if before.role == "chosen" else "reserve")
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "manifest.csv", "manifest.csv.json",
    ]  # fmt: skip
    assert not (out / ".fetch").exists()


def folders(out: Path) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.is_dir() and path.name != ".fetch")


class Killed:
    """Fetches in a process of its own that is killed."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["radial.data.open_images.fetch"])

    def start(self, target: object, *arguments: object) -> multiprocessing.Process:
        process = self.context.Process(target=target, args=arguments)
        process.start()
        return process


@pytest.fixture(scope="module")
def killed() -> Killed:
    return Killed()


def test_the_same_bytes_whatever_happens(
    full: tuple[dict[str, bytes], Manifest, dict[str, str]],
    tmp_path: Path,
    killed: Killed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 32 connections; with 1, in another directory; and killed again and again."""
    files, manifest, rules = full
    source = tmp_path / "sample.csv"
    write_manifest(source, manifest)
    seen: list[Progress] = []
    with serving(files, rules) as server:
        result = fetch(source, tmp_path / "a", settings(server), progress=seen.append)
        assert 8 < server.most <= 32
    check(tmp_path / "a", manifest, files, rules)
    wanted = expected(manifest, rules)
    per_class = len(wanted["Food"])
    gone = sum(row.role == "gone" for row in read_manifest(tmp_path / "a" / "manifest.csv").rows)
    assert result == FetchResult(
        complete=True, images=9 * per_class, wanted=9 * per_class, per_class=per_class,
        planned=CHOSEN, gone=gone,
    )  # fmt: skip
    assert per_class < CHOSEN  # a class ran out
    assert gone > 30
    assert seen[-1] == Progress(9 * per_class, 9 * per_class, seen[-1].rate, 0.0)
    totals = [now.total for now in seen]
    assert totals == sorted(totals, reverse=True)
    assert max(now.rate for now in seen) > 10_000

    with serving(files, rules) as server, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # half of the time, one after the other
        one = settings(server, connections=1)
        assert fetch(source, tmp_path / "elsewhere" / "b", one) == result
        assert server.most == 1
    assert tree(tmp_path / "elsewhere" / "b") == tree(tmp_path / "a")

    draw, kills = random.Random(1), 0
    with serving(files, rules) as server:
        for _ in range(5):
            process = killed.start(fetch, source, tmp_path / "c", settings(server, connections=8))
            asked = sum(server.requests.values()) + draw.randrange(20, 500)
            while sum(server.requests.values()) < asked and process.is_alive():
                time.sleep(0.005)
            process.kill()
            process.join()
            kills += process.exitcode == -9
        assert fetch(source, tmp_path / "c", settings(server)) == result
        calm = sum(count for path, count in server.requests.items() if path not in rules)
        assert calm <= 9 * CHOSEN + kills * 100  # what has arrived is not fetched again
    assert kills >= 3
    assert tree(tmp_path / "c") == tree(tmp_path / "a")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Path, Bucket, Manifest]]:
    """Three classes with 4 chosen images each; of the first there are no more."""
    files, manifest = bucket_and_manifest({"Cat": 4, "Dog": 7, "Red panda": 9}, 4)
    write_manifest(tmp_path / "sample.csv", manifest)
    with serving(files) as server:
        yield tmp_path / "sample.csv", server, manifest


def rows_of(manifest: Manifest, name: str) -> list[str]:
    return [address(row) for row in manifest.by_class()[name]]


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
        process = killed.start(die_at, 16, out / "manifest.csv", out, how)
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
    result = fetch(source, tmp_path / "a", settings(server, retries=2))
    assert result == FetchResult(
        complete=False, images=9, wanted=12, per_class=4, planned=4, gone=0, errors=3,
        example=result.example,
    )  # fmt: skip
    assert result.example is not None
    assert result.example.startswith(server.base)
    assert [server.requests[path] for path in server.rules] == [3, 3, 3]
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


def test_other_images_and_foreign_files_are_left_alone(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    out = tmp_path / "out"
    server.rules = {rows_of(manifest, "Cat")[2]: "404", rows_of(manifest, "Dog")[0]: "500"}
    for name in ("Dog/mine.txt", "Other/0000000000000000.jpg", "notes"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    assert not fetch(source, out, settings(server, retries=0)).complete
    server.rules.popitem()

    _, another = bucket_and_manifest({"Cat": 4, "Dog": 5}, 4)
    write_manifest(tmp_path / "another.csv", another)
    for _ in range(2):  # while it is incomplete, and then
        before = tree(out)
        with pytest.raises(DataError, match="holds images of another manifest"):
            fetch(tmp_path / "another.csv", out, settings(server))
        with pytest.raises(DataError, match="images of size as they came, not 10"):
            fetch(source, out, settings(server, size=10))
        assert tree(out) == before
        assert fetch(source, out, settings(server)).per_class == 3
    for name in ("Dog/mine.txt", "Other/0000000000000000.jpg", "notes"):
        assert (out / name).read_text() == "mine"
    assert len(list((out / "Dog").iterdir())) == 4


def test_a_directory_where_images_cannot_go_is_refused(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    dog = manifest.by_class()["Dog"][6]
    (tmp_path / "a" / "Dog").mkdir(parents=True)
    (tmp_path / "a" / dog.path).write_text("mine")
    with pytest.raises(DataError, match=rf"{dog.id}\.jpg was not fetched by this"):
        fetch(source, tmp_path / "a", settings(server))
    assert (tmp_path / "a" / dog.path).read_text() == "mine"

    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "Dog").symlink_to(tmp_path / "a")
    with pytest.raises(DataError, match="is a link: images would leave the directory"):
        fetch(source, tmp_path / "b", settings(server))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "Dog").write_text("a file")
    with pytest.raises(DataError, match="is not a folder"):
        fetch(source, tmp_path / "c", settings(server))
    with pytest.raises(DataError, match="Dog is not a directory"):
        fetch(source, tmp_path / "c" / "Dog", settings(server))
    write_manifest(tmp_path / "d" / "manifest.csv", bucket_and_manifest({"Cat": 4}, 4)[1])
    with pytest.raises(DataError, match="is that of something else"):
        fetch(source, tmp_path / "d", settings(server))
    assert not server.requests


def test_nothing_leaves_the_directory(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    source, server, _ = small
    for wrong in ("../Cat", "/tmp/Cat", ".", ".fetch", "a/b"):
        source.with_name("wrong.csv").write_text(source.read_text().replace("Cat", wrong))
        with pytest.raises(DataError, match="cannot be a folder"):
            fetch(tmp_path / "wrong.csv", tmp_path / "out", settings(server))
    with pytest.raises(DataError, match=r"cannot read .*missing\.csv"):
        fetch(tmp_path / "missing.csv", tmp_path / "out", settings(server))
    assert not (tmp_path / "out").exists()


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


def test_somebody_else_answers(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    """A login page, another bucket, a server that is down: no image is taken for gone."""
    files, manifest = bucket_and_manifest({"Cat": 300, "Dog": 400}, 300)
    source, out = tmp_path / "many.csv", tmp_path / "out"
    write_manifest(source, manifest)
    with serving(files, dict.fromkeys(files, "html")) as server:
        how = settings(server, retries=0)
        result = fetch(source, out, how)
        assert not result.complete
        assert "answers in a row were no images" in str(result.example)
        assert "a web page instead of an image" in str(result.example)
        server.rules = dict.fromkeys(files, "404")
        for base in (f"{server.base}/wrong", server.base):
            result = fetch(source, out, replace(how, base=base))
            assert f"is at {base}: is it right?" in str(result.example)
            assert (result.complete, result.images) == (False, 0)
        server.rules = dict.fromkeys(files, "500")
        server.requests.clear()
        result = fetch(source, out, how)
        assert "images in a row did not come" in str(result.example)
        assert sum(server.requests.values()) < 300
        server.recovered = True
        result = fetch(source, out, how)
        assert (result.complete, result.per_class, result.gone) == (True, 300, 0)


def test_a_class_of_which_nothing_is_left(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    server.rules = dict.fromkeys(rows_of(manifest, "Cat"), "410")
    for _ in range(2):
        result = fetch(source, tmp_path / "out", settings(server))
        assert not result.complete
        assert "class 'Cat' has no image left" in str(result.example)
    server.recovered = True
    assert fetch(source, tmp_path / "out", settings(server)).per_class == 4
    check(tmp_path / "out", manifest, server.files, {})


def test_a_full_disk_is_one_line_and_the_fetch_goes_on_later(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, server, _ = small
    fetch(source, tmp_path / "whole", settings(server))
    write, left = workers._write, iter(range(5))

    def full(path: Path, content: bytes) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        write(path, content)

    told: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_write", full)
        patch.setattr(arriving.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**6}))
        result = fetch(source, tmp_path / "out", settings(server), tell=told.append)
    assert not result.complete
    assert "no space left on the disk" in str(result.example)
    assert "\n" not in str(result.example)
    assert told == [
        f"the disk may be too small: about 0.0 GB to come, 0.0 GB free in {tmp_path}/out"
    ]
    assert fetch(source, tmp_path / "out", settings(server)).complete
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_interrupted_by_the_user(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    """Ctrl-C ends at once, though an answer is awaited, and the fetch can go on."""
    source, server, manifest = small
    server.rules = {rows_of(manifest, "Cat")[0]: "silence once"}

    def interrupt(now: Progress) -> None:
        if now.done >= 5:
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fetch(source, tmp_path / "out", settings(server), progress=interrupt)
    assert time.monotonic() - start < 1.4
    assert fetch(source, tmp_path / "out", settings(server)).complete
    check(tmp_path / "out", manifest, server.files, {})


def test_one_process_a_directory(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    source, server, _ = small

    def again(_: Progress) -> None:
        with pytest.raises(DataError, match="another process is at work on"):
            fetch(source, tmp_path / "out", settings(server))

    assert fetch(source, tmp_path / "out", settings(server), progress=again).complete


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": "s3://bucket"}, "not an address"),
        ({"connections": 0}, "connections must be"),
        ({"connections": 1000}, "at most 256, not 1000"),
        ({"size": 0}, "size must be"),
        ({"retries": -1}, "retries must be"),
        ({"timeout": 0.0}, "timeout must be"),
        ({"backoff": float("nan")}, "backoff must be"),
    ],
)
def test_settings_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        FetchSettings(**change)


@pytest.mark.parametrize("seed", range(30))
def test_the_plan_does_not_depend_on_the_order(seed: int) -> None:
    """Against the definition, with images of three classes found good or gone in any order."""
    draw = random.Random(seed)
    sizes = {name: 8 + draw.randrange(6) for name in "abc"}
    rows = tuple(
        Row(f"{kind}{rank:015x}", "train", f"/m/{kind}", name, rank,
            "chosen" if rank < 8 else "reserve", 0)
        for kind, name in enumerate(sizes) for rank in range(sizes[name])
    )  # fmt: skip
    lost = {row.id for row in rows if draw.random() < 0.2}
    there = {n: [r for r in rows if r.class_name == n and r.id not in lost] for n in sizes}
    count = min(8, *map(len, there.values()))
    plan, asked, results = Plan(Manifest(rows=rows)), [], set()
    while True:
        for _ in range(draw.randrange(1, 5)):
            row = plan.next()
            asked += [] if row is None else [row]
        if not asked:
            break
        row = asked.pop(draw.randrange(len(asked)))
        (plan.gone if row.id in lost else plan.good)(row)
    final = list(plan.final_rows())
    assert plan.target == count
    assert plan.done == plan.total == 3 * count
    chosen = [row.id for row in final if row.role == "chosen"]
    assert chosen == [row.id for name in sizes for row in there[name][:count]]
    for row in final:
        if row.rank <= there[row.class_name][count - 1].rank:
            results.add((row.id in lost, row.role))
        else:
            assert row.role == ("cut" if row.rank < 8 else "reserve")
    assert results <= {(True, "gone"), (False, "chosen")}
