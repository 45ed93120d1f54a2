"""Claims: one holder, taken over only from the dead, whoever is quickest."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from radial.study import claims
from radial.study.claims import Claim, claim, live, newest


def foreign(folder: Path, name: str, age: float = 0.0) -> Path:
    """A claim of another machine, last touched ``age`` seconds ago."""
    path = folder / name
    path.write_text(json.dumps({"host": "far", "pid": 1, "born": "1", "place": "elsewhere"}))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def all_at_once(folder: Path, run: str) -> list[Claim]:
    with ThreadPoolExecutor(8) as pool:
        return [found for found in pool.map(lambda _: claim(folder, run), range(8)) if found]


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first = claim(tmp_path, "a")
    assert first is not None
    assert first.held()
    assert claim(tmp_path, "a") is None
    assert live(tmp_path) == {"a"}
    first.release()
    assert not list(tmp_path.iterdir())
    again = claim(tmp_path, "a")
    assert again is not None
    again.release()


def test_only_one_of_many_gets_it(tmp_path: Path) -> None:
    for number in range(20):
        found = all_at_once(tmp_path, f"r{number}")
        assert len(found) == 1
        found[0].release()


def test_only_one_of_many_takes_over(tmp_path: Path) -> None:
    for number in range(20):
        foreign(tmp_path, f"r{number}.1", age=1000)
        found = all_at_once(tmp_path, f"r{number}")
        assert [f.generation for f in found] == [2]
        found[0].release()
        assert newest(tmp_path, f"r{number}") == 0


def test_a_run_given_back_and_claimed_anew_is_not_the_sleepers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sleeps beyond the heartbeat, B takes over and gives back, C claims: A has nothing."""
    monkeypatch.setattr(claims, "BEAT", 1e6)  # no heart beats by itself: the test is the clock
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(claims, "place", lambda: "another machine")
        sleeper = claim(tmp_path, "a")
    assert sleeper is not None
    os.utime(sleeper.path, (0, 0))
    second = claim(tmp_path, "a")
    assert second is not None
    assert not sleeper.held()
    second.release()
    third = claim(tmp_path, "a")
    assert third is not None
    assert third.path == sleeper.path
    assert third.held()
    assert not sleeper.held()
    os.utime(third.path, (1, 1))
    assert not sleeper.beat()
    assert third.path.stat().st_mtime == 1
    sleeper.release()
    assert third.held()
    third.release()
    assert not list(tmp_path.iterdir())


def test_another_machine_is_given_a_minute(tmp_path: Path) -> None:
    foreign(tmp_path, "a.1", age=claims.STALE - 10)
    assert claim(tmp_path, "a") is None
    foreign(tmp_path, "a.1", age=claims.STALE + 10)
    found = claim(tmp_path, "a")
    assert found is not None
    found.release()


def _claim_and_die(folder: str) -> None:
    assert claim(Path(folder), "a") is not None
    os._exit(9)


def test_the_dead_of_this_machine_are_known_at_once(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_claim_and_die, args=(str(tmp_path),)
    )
    process.start()
    process.join()
    assert newest(tmp_path, "a") == 1
    assert live(tmp_path) == set()
    found = claim(tmp_path, "a")
    assert found is not None
    assert found.generation == 2
    found.release()


def test_a_pid_used_again_is_not_the_holder(tmp_path: Path) -> None:
    who = claims.holder()
    (tmp_path / "a.1").write_text(json.dumps(who | {"born": "12345"}))
    assert live(tmp_path) == set()
    (tmp_path / "a.1").write_text(json.dumps(who))
    assert live(tmp_path) == {"a"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_claim_not_written_yet_counts_by_its_age(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.1").write_text(text)
    assert claim(tmp_path, "a") is None
    os.utime(tmp_path / "a.1", (0, 0))
    found = claim(tmp_path, "a")
    assert found is not None
    found.release()


def test_the_heart_goes_on_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT", 0.02)
    found = claim(tmp_path, "a")
    assert found is not None
    real, errors = claims.newest, iter([True, True])

    def stumbles(folder: Path, run: str) -> int:
        if next(errors, False):
            raise OSError(116, "Stale file handle")
        return real(folder, run)

    monkeypatch.setattr(claims, "newest", stumbles)
    end = time.monotonic() + 60
    while next(errors, None) is not None and time.monotonic() < end:
        time.sleep(0.05)
    os.utime(found.path, (0, 0))
    while found.path.stat().st_mtime < 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert found.path.stat().st_mtime > 1
    found.release()


def test_the_heart_beats_and_a_loss_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BEAT", 0.02)
    lost: list[bool] = []
    found = claim(tmp_path, "a")
    assert found is not None
    found.on_loss = lambda: lost.append(True)
    os.utime(found.path, (0, 0))
    end = time.monotonic() + 60
    while found.path.stat().st_mtime < 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert found.path.stat().st_mtime > 1
    assert not lost
    foreign(tmp_path, "a.2")  # taken over
    while not lost and time.monotonic() < end:
        time.sleep(0.01)
    assert lost == [True]
    assert not found.held()
    found.release()
    assert (tmp_path / "a.2").exists()


def test_a_claim_that_finds_no_room_is_none(tmp_path: Path) -> None:
    """Nothing of it stays that would look like a holder who died."""
    script = """
import pathlib, resource, signal, sys
from radial.study.claims import claim
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    claim(pathlib.Path(sys.argv[1]), "a")
except OSError as error:
    sys.exit(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_a_halted_holder_of_this_machine_is_given_a_minute(tmp_path: Path) -> None:
    script = """
import pathlib, sys, time
from radial.study.claims import claim
claim(pathlib.Path(sys.argv[1]), "a"), print("claimed", flush=True), time.sleep(1e6)
"""
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"claimed\n"
        os.utime(tmp_path / "a.1", (0, 0))
        assert claim(tmp_path, "a") is None  # it lives: as slow as it likes
        holder.send_signal(signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
        os.utime(tmp_path / "a.1")
        assert claim(tmp_path, "a") is None
        os.utime(tmp_path / "a.1", (0, 0))
        found = claim(tmp_path, "a")
        assert found is not None
        found.release()
    finally:
        holder.kill()
        holder.communicate()
