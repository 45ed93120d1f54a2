"""Kill, refuse room to and halt `train`, `study`, `fetch` at each of their changes to the disk.

To attack another command add a `Case` to `cases`: how it is begun, how it is gone on with, and
what of its files says that the end is the same.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    Tally,
    command,
    counted,
    disturbed,
    ended,
    halted,
    killed,
    no_room,
    parts,
    refused,
    run,
    small_files,
    start,
)
from PIL import Image

TIMES = ("seconds", "images_per_second", "directory")
TRAIN = (
    "--backbone", "resnet9-w0.0625", "--hidden-dim", 8, "--output-dim", 4, "--batch-size", 16,
    "--threads", 1,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command under attack, in a directory of its own each time."""

    name: str
    begin: Callable[[Path], Callable[[], int]]  # a task that does all of it
    go_on: Callable[[Path], Callable[[], int]]  # what a user would do after its end by force
    end: Callable[[Path], Any]  # what must be the same in the end
    before: Callable[[Path], None] | None = None  # what is there beforehand


def pictures(folder: Path, count: int = 80) -> Path:
    random = np.random.default_rng(0)
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for number in range(count // 2):
            pixels = random.integers(0, 255, (16, 16, 3), np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number:03d}.png")
    return folder


def run_end(directory: Path) -> dict[str, Any]:
    """All that a run's files say, bit for bit, but for times."""
    import torch

    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.suffix == ".ckpt":
            content = torch.load(path, weights_only=True)
            tensors = [*content["state_dict"].items()]
            for number, values in content["optimizer_states"][0]["state"].items():
                tensors += [(f"{number}.{k}", v) for k, v in values.items()]
            kept = [(k, v.numpy().tobytes() if hasattr(v, "numpy") else v) for k, v in tensors]
            found[name] = content["epoch"], hashlib.sha256(repr(kept).encode()).hexdigest()
        elif path.suffix == ".json" and path.name != "environment.json":
            found[name] = timeless(json.loads(path.read_bytes()))
        elif path.suffix == ".csv":
            rows = list(csv.DictReader(path.open(newline="")))
            found[name] = timeless(rows)
        elif path.is_file():
            found[name] = ""
    return found


def timeless(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: timeless(v) for k, v in values.items() if k not in TIMES}
    return [timeless(v) for v in values] if isinstance(values, list) else values


def study_end(directory: Path) -> dict[str, Any]:
    from radial.study.claims import live

    found = {path.name: run_end(path) for path in sorted((directory / "runs").iterdir())}
    claims = live(directory / "claims")  # that of a dead holder of a complete run says nothing
    failures = [path.name for path in directory.glob("failures/*")]
    start = {path.name: run_end(directory / "start") for path in directory.glob("start/*.json")}
    trials = {path.name: run_end(path) for path in sorted(directory.glob("[bt]*/"))}
    return found | {"claims": claims, "failures": failures, "start": start, "trials": trials}


def fetch_end(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def worker(directory: Path) -> Callable[[], int]:
    """What each process of `radial study run` does, until nothing is left to do."""

    def go() -> int:
        from radial.study.worker import main

        return main([str(directory), "--session", f"{os.getpid()}-{time.time()}", "--threads", "1"])

    return go


def then(*tasks: Callable[[], int]) -> Callable[[], int]:
    return lambda: next((code for task in tasks if (code := task())), 0)


def cases(images: Path, plan: Path, manifest: Path, base: str) -> list[Case]:
    """Every command whose files must survive anything."""
    data = ("--data", f"folder:{images}")

    def train(*more: object) -> Callable[[Path], Callable[[], int]]:
        return lambda out: command("train", *data, *TRAIN, "--out", out, *more)

    def resume(*more: object) -> Callable[[Path], Callable[[], int]]:
        def either(out: Path) -> Callable[[], int]:
            begun = (out / "config.yaml").is_file()
            return command("train", "--resume", out) if begun else train(*more)(out)

        return either

    def finished(out: Path) -> None:
        assert run(train("--epochs", 1)(out), out.parent / "first").code == 0

    def extend(out: Path) -> Callable[[], int]:
        return command("train", "--resume", out, "--epochs", 3)

    def study(out: Path) -> Callable[[], int]:
        return then(command("study", "submit", plan, "--out", out, "--dry-run"), worker(out))

    def tune(out: Path) -> Callable[[], int]:
        asked = ("--trials", 2, "--confirm", 0, "--score", "rankme@backbone", "--dry-run")
        lr, more = (
            "base_lr={low: 0.01, high: 1.0, log: true}",
            f"data=folder:{images.parent / 'more'}",
        )
        changes = [
            word
            for text in (lr, more, "evaluate=false", "save_every=0")
            for word in ("--set", text)
        ]
        return then(command("tune", plan, "--out", out, *asked, *changes), worker(out))

    def fetch(out: Path) -> Callable[[], int]:
        words = ("data", "open-images", "fetch", manifest, "--out", out, "--base", base)
        return command(*words, "--timeout", 10, "--connections", 2)

    def planned(out: Path) -> None:
        made = command("study", "submit", plan, "--out", out, "--dry-run")
        assert run(made, out.parent / "first").code == 0

    kept = ("--epochs", 4, "--save-every", 1)
    lazy = ("--epochs", 3, "--workers", 2)
    again = ("--epochs", 2, "--seed", 7, "--overwrite")
    return [
        Case("train", train(*kept), resume(*kept), run_end),
        Case("train, loader workers", train(*lazy), resume(*lazy), run_end),
        Case("train --resume --epochs", extend, extend, run_end, finished),
        Case("train --overwrite", train(*again), train(*again), run_end, finished),
        Case("study", study, study, study_end),
        Case("tune", tune, tune, study_end),
        Case("worker", worker, worker, study_end, planned),
        Case("fetch", fetch, fetch, fetch_end),
    ]


PLAN = """
name: attacked
constants: {{data: "folder:{images}", backbone: resnet9-w0.0625, hidden_dim: 8, output_dim: 4,
            batch_size: 16, epochs: 3, save_every: 1}}
methods: [simclr]
heads: [default]
seeds: [0]
evaluate: {{protocol: [exact]}}
score: {{images: 16, view_images: 8, repeats: 0, scores: [rankme]}}
"""


@contextmanager
def ground(place: Path) -> Iterator[tuple[list[Case], str]]:
    """Images, a plan, a bucket: what the commands under attack work on; the bucket's address."""
    from open_images_server import bucket_and_manifest, serving
    from radial.open_images.manifest import write_manifest

    images, plan = pictures(place / "images"), place / "plan.yaml"
    pictures(place / "more", 160)  # a search wants 16 for its score
    plan.write_text(PLAN.format(images=images))
    files, manifest = bucket_and_manifest({"Cat": 8, "Dog": 9}, 6)
    write_manifest(place / "manifest.csv", manifest)
    os.environ["no_proxy"] = "*"
    reading, writing = os.pipe()
    server = os.fork()
    if not server:  # in a process of its own: nobody forks from one that has threads
        with serving(files) as bucket:
            os.write(writing, bucket.base.encode())
            os.close(writing)
            signal.pause()
    os.close(writing)
    base = os.read(reading, 100).decode()
    try:
        yield cases(images, plan, place / "manifest.csv", base), base
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def reference(case: Case, place: Path) -> tuple[int, Any]:
    """Undisturbed: how many changes to the disk, and the end."""
    out = place / "undisturbed" / "out"
    if case.before is not None:
        case.before(out)
    return counted(case.begin(out), place / "undisturbed" / "log"), case.end(out)


def fresh(case: Case, place: Path, name: str) -> Path:
    """A directory as the case finds it; what was there beforehand is made once."""
    out, model = place / name / "out", place / "model" / "out"
    if case.before is not None:
        if not model.exists():
            case.before(model)
        shutil.copytree(model, out)
    return out


def attack_kills(case: Case, place: Path, tally: Tally, points: Sequence[int] | None = None) -> int:
    """kill -9 before each change to the disk, then go on: the end is that of the undisturbed."""
    total, end = reference(case, place)
    for at in points or range(1, total + 1):
        out = fresh(case, place, f"k{at}")
        done = run(disturbed(case.begin(out), killed, at), out.parent / "log")
        faults = finish(case, out, end)
        if done.code == 0:  # fetch has a change more or less, by what arrives together
            shutil.rmtree(out.parent)
            continue
        if done.code != -signal.SIGKILL:
            faults.append(f"ended with {done.code}: {done.err}")
        tally.add(f"{case.name}, killed at change {at} of {total}", faults)
        shutil.rmtree(out.parent)
    return total


def finish(case: Case, out: Path, end: Any) -> list[str]:
    done = run(case.go_on(out), out.parent / "log")
    if done.code:
        return [f"cannot go on, {done.code}: {done.err[-400:]}"]
    found = case.end(out)
    return ([] if found == end else [f"another end: {difference(end, found)}"]) + parts(out)


def difference(one: Any, other: Any) -> str:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{str(one)[:80]} and {str(other)[:80]}"
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return "; ".join(f"{key}: {difference(one.get(key), other.get(key))}" for key in keys[:3])


def attack_room(case: Case, place: Path, tally: Tally, points: Sequence[int] | None = None) -> None:
    """No room at each change, and for no file beyond a size; then room again."""
    total, end = reference(case, place)
    of_study = case.name == "study"  # its workers write their lines into a log
    for at in points or range(1, total + 1):
        out = fresh(case, place, f"r{at}")
        task = disturbed(case.begin(out), no_room, at)
        faults = _refusal(run(task, out.parent / "log"), of_study) + parts(out)
        tally.add(f"{case.name}, no room at change {at}", faults + finish(case, out, end))
        shutil.rmtree(out.parent)
    for size in (0, 100, 1000, 10_000):
        out = fresh(case, place, f"s{size}")

        def tight(out: Path = out, size: int = size) -> int:
            small_files(size)
            return case.begin(out)()

        log = out.parent / "log"
        done = run(tight, log)
        faults = [] if size < 10_000 else _refusal(done, of_study)  # else the line does not fit
        tally.add(
            f"{case.name}, files of at most {size} bytes",
            faults + parts(out) + finish(case, out, end),
        )
        shutil.rmtree(out.parent)


def _refusal(done: Any, of_study: bool) -> list[str]:
    if of_study:
        return [] if done.code >= 0 else [f"ended with {done.code}"]
    faults = refused(done, codes=(0, 1, 2))  # 0: at what is only cleaned up; 1: fetch, in part
    said = done.err.lower()
    if done.code and not any(word in said for word in ("no space left", "file too large")):
        faults.append(f"nothing is said of the disk: {done.err[-200:]}")
    return faults


def attack_fence(
    case: Case, place: Path, tally: Tally, points: Sequence[int] | None = None
) -> None:
    """Halt a worker at each change, let another take over and finish, wake the first."""
    total, end = reference(case, place)
    for at in points or range(1, total + 1):
        out = fresh(case, place, f"f{at}")
        log = out.parent / "log"
        pid = start(disturbed(case.begin(out), halted, at), log)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):  # a change less than the undisturbed made
            shutil.rmtree(out.parent)
            continue
        for claim in out.glob("claims/*.*"):
            os.utime(claim, (0, 0))  # halted for long
        done = run(case.go_on(out), out.parent / "other")
        before = snapshot(out)
        os.kill(pid, signal.SIGCONT)
        sleeper = ended(pid, log)
        faults = [] if done.code == 0 else [f"not taken over: {done.err[-300:]}"]
        faults += [] if sleeper.code >= 0 else [f"the sleeper ended with {sleeper.code}"]
        if snapshot(out) != before:
            faults.append(f"the sleeper wrote: {difference(before, snapshot(out))}")
        faults += [] if case.end(out) == end else [f"{difference(end, case.end(out))}"]
        tally.add(f"{case.name}, halted at change {at} of {total}", faults + parts(out))
        shutil.rmtree(out.parent)


def snapshot(out: Path) -> dict[str, str]:
    """Of the runs: not logs, nor claims, which the sleeper may give back, nor a file begun.

    What runs share (``start``) may be written again, the same but for its times.
    """
    return {
        name: digest
        for name, digest in fetch_end(out).items()
        if not name.startswith(("logs", "claims", "slurm.sh", "start")) and ".part" not in name
    }
