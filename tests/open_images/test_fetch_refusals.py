"""What a fetch refuses, leaves alone, and survives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from open_images_server import (
    Bucket,
    bucket_and_manifest,
    check,
    rows_of,
    serving,
    settings,
    small_bucket,
    tree,
)
from radial.data import DataError
from radial.data.subset import open_subset
from radial.open_images import arrivals, workers
from radial.open_images.fetch import FetchSettings, Reading, fetch
from radial.open_images.manifest import Manifest, write_manifest


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Path, Bucket, Manifest]]:
    with small_bucket(tmp_path / "sample.csv") as (server, manifest):
        yield tmp_path / "sample.csv", server, manifest


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
    assert not list(tmp_path.glob("*/.fetch"))  # it is as it was, so a dataset can be read


def test_images_that_came_without_their_manifest_stay_usable(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, _ = small
    out = tmp_path / "out"
    fetch(source, out, settings(server))
    for path in out.glob("manifest*"):
        path.unlink()
    before = tree(out)
    with pytest.raises(DataError, match="was not fetched by this"):
        fetch(source, out, settings(server))
    assert tree(out) == before
    assert len(open_subset(out).classes) == 3


def test_nothing_leaves_the_directory(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    source, server, _ = small
    for wrong in ("../Cat", "/tmp/Cat", ".", ".fetch", "a/b"):
        source.with_name("wrong.csv").write_text(source.read_text().replace("Cat", wrong))
        with pytest.raises(DataError, match="cannot be a folder"):
            fetch(tmp_path / "wrong.csv", tmp_path / "out", settings(server))
    with pytest.raises(DataError, match=r"cannot read .*missing\.csv"):
        fetch(tmp_path / "missing.csv", tmp_path / "out", settings(server))
    assert not (tmp_path / "out").exists()


def test_somebody_else_answers(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    """A login page, another bucket, a server that is down: no image is taken for gone."""
    files, manifest = bucket_and_manifest({"Cat": 230, "Dog": 240}, 230)
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
        assert (result.complete, result.per_class, result.gone) == (True, 230, 0)


@pytest.mark.parametrize("connections", [1, 8])
def test_a_page_in_place_of_the_last_images(tmp_path: Path, connections: int) -> None:
    """They are not gone: an image that came before does not come any more either."""
    files, manifest = bucket_and_manifest({"Cat": 20, "Dog": 20}, 20)
    source, out = tmp_path / "sample.csv", tmp_path / "out"
    write_manifest(source, manifest)
    with serving(files) as server:
        server.broken_after = 30
        result = fetch(source, out, settings(server, connections=connections))
        assert not result.complete
        assert 1 <= result.errors <= 20
        assert "came before does not come any more" in str(result.example)
        assert "a web page instead of an image" in str(result.example)
        server.broken_after = None
        result = fetch(source, out, settings(server))
        assert (result.complete, result.per_class, result.gone) == (True, 20, 0)
        check(out, manifest, files, {})

        page = dict.fromkeys(rows_of(manifest, "Cat")[17:], "html")  # of these alone
        server.rules = page
        server.requests.clear()
        result = fetch(source, tmp_path / "b", settings(server, connections=connections))
        assert (result.complete, result.per_class, result.limited_by) == (True, 17, "Cat")
        check(tmp_path / "b", manifest, files, page)


def test_a_wrong_address_for_the_last_images(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    server.rules = {rows_of(manifest, "Cat")[0]: "500"}
    assert fetch(source, tmp_path / "out", settings(server, retries=0)).images == 11
    wrong = replace(settings(server), base=f"{server.base}/wrong")
    result = fetch(source, tmp_path / "out", wrong)
    assert (result.complete, result.errors) == (False, 1)
    server.recovered = True
    assert fetch(source, tmp_path / "out", settings(server)).per_class == 4


def test_a_redirect_to_nowhere_is_one_image(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, manifest = small
    server.rules = {rows_of(manifest, "Dog")[1]: "moved nowhere"}
    result = fetch(source, tmp_path / "out", settings(server, retries=0))
    assert (result.complete, result.images, result.errors) == (False, 11, 1)
    assert "redirected to 'http://[::1/', no address" in str(result.example)


def test_a_damaged_image_comes_again(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    """One that decodes, but does not have the MD5 sum that its ETag says."""
    source, server, manifest = small
    server.rules = {rows_of(manifest, "Red panda")[3]: "damaged once"}
    assert fetch(source, tmp_path / "out", settings(server, connections=1)).complete
    check(tmp_path / "out", manifest, server.files, {})
    server.wrong_tags = True  # of this form, but something else: they say nothing
    assert fetch(source, tmp_path / "b", settings(server, retries=0)).complete


def test_an_image_damaged_later_is_noticed_and_repaired(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, _ = small
    out = tmp_path / "out"
    result = fetch(source, out, settings(server))
    before = tree(out)
    cut, zeroed = sorted((out / "Cat").iterdir())[:2]
    for given in (source, out / "manifest.csv"):
        cut.write_bytes(cut.read_bytes()[:50])
        zeroed.write_bytes(bytes(zeroed.stat().st_size))  # seen as all are looked at now
        server.requests.clear()
        told: list[str] = []
        assert fetch(given, out, settings(server), tell=told.append) == result
        assert told[0] == "1 image is lost or damaged; the others are checked"
        assert sum(server.requests.values()) == 2
        assert tree(out) == before


def test_a_journal_that_is_not_ours_is_refused(
    small: tuple[Path, Bucket, Manifest], tmp_path: Path
) -> None:
    source, server, _ = small
    other = tmp_path / "other"
    for name in ("arriving/precious.txt", "lock", "notes"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text("mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".fetch").symlink_to(other)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".fetch").write_text("mine")
    (tmp_path / "c" / ".fetch").mkdir(parents=True)
    (tmp_path / "c" / ".fetch" / "arriving").symlink_to(other / "arriving")
    (tmp_path / "d" / ".fetch").mkdir(parents=True)
    (tmp_path / "d" / ".fetch" / "notes").write_text("mine")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / ".fetch").symlink_to(tmp_path / "nowhere")
    before = tree(tmp_path)
    for name in "abcde":
        with pytest.raises(DataError, match=r"\.fetch.*move it away"):
            fetch(source, tmp_path / name, settings(server))
    assert tree(tmp_path) == before
    assert not server.requests


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
        patch.setattr(arrivals.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**6}))
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

    def interrupt(now: Reading) -> None:
        if now.done >= 5:
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):  # which no timeout would end
        fetch(source, tmp_path / "out", settings(server, timeout=1e6), progress=interrupt)
    for thread in set(threading.enumerate()) - before:
        if thread.daemon and thread.name.startswith("fetch"):
            thread.join()
    assert not server.over.is_set()
    assert fetch(source, tmp_path / "out", settings(server)).complete
    check(tmp_path / "out", manifest, server.files, {})


def test_interrupted_while_connecting(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    """To a server that takes no more connections: nothing can wake a thread that waits there."""
    source, _, _ = small
    with socket.socket() as full, ExitStack() as held:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            client = held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        base = f"http://127.0.0.1:{full.getsockname()[1]}"
        how = FetchSettings(base=base, timeout=1e6, connections=2, retries=0)

        def interrupt(_: Reading) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):  # else it would wait for ever
            fetch(source, tmp_path / "out", how, progress=interrupt)


def test_one_process_a_directory(small: tuple[Path, Bucket, Manifest], tmp_path: Path) -> None:
    source, server, _ = small

    def again(_: Reading) -> None:
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
