"""Mutated files of every kind, handed to the commands that read them.

Bytes are flipped, cut, doubled and replaced; structures get wrong kinds, odd keys, values that are
too deep, too large or refer to themselves; some carry escape sequences or pickles that would run a
command. A file is refused in one line with exit code 2, or read, and nothing else comes of it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Ended, Tally, command, refused, run

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, float("nan"), 10**30, "", "\x1b]0;owned\x07\x1b[2J", "=1+1",
    "é" * 300, [], [[]], {}, {"a": {"b": [1, {"c": None}]}}, ["x"] * 50, "../../etc/passwd", "\x00",
    "on", "[",
)  # fmt: skip
BATCH = 25  # files a child, which may end by a signal
SECONDS = 300  # for one file: so long that only a hang takes it


class Hostile:
    """A pickle that touches a file when it is read."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


@dataclass(frozen=True)
class Kind:
    """Of a file: one that is good, and who reads it."""

    name: str
    path: Path  # the good file, which each mutant replaces
    words: tuple[tuple[object, ...], ...]  # commands that read it
    structural: Callable[[random.Random, bytes], bytes]


def mutants(kind: Kind, good: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Half of bytes, half of structure; the same every time."""
    draw = random.Random(f"{kind.name} {seed}")
    yield from FIXED[: min(count // 4, len(FIXED))]
    for number in range(count - min(count // 4, len(FIXED))):
        yield kind.structural(draw, good) if number % 2 else damaged(draw, good)


# Each list is nine times the one before it: a few hundred bytes that stand for 9^9 values.
LAUGHS = b"".join(
    b"b%d: &y%d [%s]\n" % (n, n, b",".join([b"*y%d" % (n - 1) if n else b"1"] * 9))
    for n in range(9)
)
FIXED = (
    b"",
    b"\0",
    b"[" * 50_000,
    b"{" * 50_000,
    b'{"a":' * 20_000,
    b"a: " * 5000,
    b"\xff\xfe" * 40,
    b"&a [*a]",
    b"a: &a {b: *a}",
    b"? [a]\n: 1",
    b"2001-01-01: x",
    b"!!python/object/apply:os.system [x]",
    LAUGHS,
    b"PK\x03\x04" + bytes(100),
    b"\x80\x02c__builtin__\neval\nX\x01\0\0\0a\x85R.",
    b"=1+1,+2\n-3,@4\n",
)


def damaged(draw: random.Random, good: bytes) -> bytes:
    content, at = bytearray(good), draw.randrange(max(1, len(good)))
    match draw.randrange(6):
        case 0:
            content[at] ^= 1 << draw.randrange(8)
        case 1:
            del content[at:]
        case 2:
            del content[at : at + draw.randrange(1, 64)]
        case 3:
            content[at:at] = draw.randbytes(draw.randrange(1, 64))
        case 4:
            content[at:at] = content[max(0, at - 500) : at]
        case _:
            for _ in range(20):
                content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    for key, item in items:
        yield from places(item, (*path, key))


def changed(draw: random.Random, value: Any, odd: Any = None) -> Any:
    """``value`` with one place of another kind, renamed, or gone."""
    path = draw.choice(list(places(value)))
    if not path:
        return draw.choice(ODD)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if isinstance(inner, dict) and draw.random() < 0.2:
        inner[draw.choice(("other", "\x1b[2J", "é"))] = inner.pop(path[-1])
    elif draw.random() < 0.15:
        del inner[path[-1]]
    else:
        inner[path[-1]] = odd if odd is not None else draw.choice(ODD)
    return value


def of_yaml(draw: random.Random, good: bytes) -> bytes:
    import yaml

    value = changed(draw, yaml.safe_load(good))
    if draw.random() < 0.1 and isinstance(value, dict):
        value[draw.choice((3, None, 2.5, True))] = value
    return yaml.safe_dump(value, allow_unicode=True).encode(errors="surrogateescape")


def of_json(draw: random.Random, good: bytes) -> bytes:
    return json.dumps(changed(draw, json.loads(good))).encode()


def of_csv(draw: random.Random, good: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(good.decode())))
    row = draw.choice(rows)
    match draw.randrange(5):
        case 0:
            row[draw.randrange(len(row))] = str(draw.choice(ODD))
        case 1:
            row.pop(draw.randrange(len(row)))
        case 2:
            row.insert(draw.randrange(len(row)), str(draw.choice(ODD)))
        case 3:
            rows.append(list(row))
        case _:
            rows[0][draw.randrange(len(rows[0]))] = str(draw.choice(ODD))
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(rows)
    return sink.getvalue().encode(errors="replace")


def of_checkpoint(canary: Path) -> Callable[[random.Random, bytes], bytes]:
    def change(draw: random.Random, good: bytes) -> bytes:
        import torch

        content = torch.load(io.BytesIO(good), weights_only=True)
        kind, sink = draw.random(), io.BytesIO()
        state = content["state_dict"]
        name = draw.choice(list(state))
        if kind < 0.05:
            content["extra"] = Hostile(canary)
        elif kind < 0.1:
            return pickle.dumps(Hostile(canary))
        elif kind < 0.3:
            odd = (torch.zeros(3), torch.zeros(0), state[name].to(torch.int8), 1.0, None, "x")
            state[name] = draw.choice((*odd, state[name].double() * float("nan")))
        elif kind < 0.4:
            state[f"{name}.x"] = state.pop(name)
        elif kind < 0.5:
            state[draw.choice((3, None, ("a",), "", "\x1b[2J"))] = torch.zeros(2)
        else:
            part = draw.choice(("radial", "radial", "callbacks", "loops", "optimizer_states"))
            content[part] = changed(draw, content[part])
        torch.save(content, sink)
        return sink.getvalue()

    return change


def attack(kind: Kind, count: int, tally: Tally, place: Path, canary: Path, seed: int = 0) -> None:
    """Each mutant to each command, in children of a batch each."""
    good, log = kind.path.read_bytes(), place / "log"
    files = list(mutants(kind, good, count, seed))
    at = 0
    while at < len(files):
        batch = files[at : at + BATCH]
        report = place / "report"
        report.write_text("")
        done = run(lambda batch=batch, report=report: _try(kind, batch, place, report), log)
        told = [json.loads(line) for line in report.read_text().splitlines()]
        for number, faults in enumerate(told):
            tally.add(f"{kind.name} {at + number}", faults)
        if len(told) < len(batch):  # ended within the next one
            (place / f"culprit-{kind.name}").write_bytes(batch[len(told)])
            tally.add(
                f"{kind.name} {at + len(told)}", [f"ended with {done.code}: {done.err[-300:]}"]
            )
            at += 1
        at += len(told)
    if canary.exists():
        tally.broken.append(f"{kind.name}: something was run")
        canary.unlink()


def _try(kind: Kind, batch: list[bytes], place: Path, report: Path) -> int:
    with report.open("a") as told:
        for content in batch:
            copy = place / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            root = kind.path.parents[len(kind.path.relative_to(place).parts) - 2]
            shutil.copytree(root, copy / root.name)
            target = copy / kind.path.relative_to(place)
            target.write_bytes(content)
            faults: list[str] = []
            for words in kind.words:
                faults += _tried([str(word).replace(str(place), str(copy)) for word in words], copy)
            told.write(json.dumps(faults) + "\n")
            told.flush()
    return 0


def _tried(words: list[str], copy: Path) -> list[str]:
    before = set(copy.rglob("*"))
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = command(*words)()
    except TimeoutError:
        return [f"{' '.join(words)[:60]} takes more than {SECONDS} s"]
    except BaseException as error:
        return [f"{' '.join(words)[:60]} raised {type(error).__name__}: {error}"]
    finally:
        signal.alarm(0)
    faults = refused(Ended(code, out.getvalue(), err.getvalue()))
    left = [path.name for path in copy.rglob("*") if path not in before]
    if code == 2 and (half := [name for name in left if not name.startswith("study.yaml")]):
        faults.append(f"refused, and left {half}")
    return [f"{words[0]} {words[1]}: {fault}" for fault in faults]


def _too_long(*_: object) -> None:
    raise TimeoutError


def grow(table: Path) -> None:
    """Twelve runs of the one: two methods, two heads, three seeds, other figures."""
    header, row = csv.reader(table.open(newline=""))
    rows = []
    for number in range(12):
        values = dict(zip(header, row)) | {"run": f"r{number}", "index": number}
        values |= {"method": ("simclr", "byol")[number % 2], "seed": number % 3}
        values |= {"head": ("default", "rbfn")[number // 2 % 2], "accuracy": 0.3 + number / 30}
        rows.append(list((values | {"rankme@backbone": 2.0 + number % 5}).values()))
    with table.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def good_files(place: Path, base: str) -> list[Kind]:
    """A run, a study, a table, a manifest, metadata: each as radial or the source writes it."""
    from kills import PLAN, TRAIN, pictures, worker

    from open_images_files import write_metadata
    from open_images_server import bucket_and_manifest

    def make() -> int:
        from radial.open_images.manifest import write_manifest

        images = pictures(place / "images")
        data = ("--data", f"folder:{images}", *TRAIN)
        run_ = command("train", *data, "--epochs", 1, "--out", place / "run" / "r")()
        (place / "plan").mkdir()
        (place / "plan" / "p.yaml").write_text(
            PLAN.format(images=images) + "exclude: [{seed: 9}]\n"
        )
        made = place / "study" / "s"
        command("study", "submit", place / "plan" / "p.yaml", "--out", made, "--dry-run")()
        worked = worker(made)()
        (place / "table").mkdir()
        command("study", "report", made, "--html", os.devnull, "--tables", place / "table")()
        grow(place / "table" / "runs.csv")
        (place / "manifest").mkdir()
        write_manifest(
            place / "manifest" / "m.csv", bucket_and_manifest({"Cat": 8, "Dog": 9}, 6)[1]
        )
        (place / "metadata").mkdir()
        write_metadata(place / "metadata", images=60, classes=4)
        return run_ or worked

    done = run(make, place / "making")
    assert done.code == 0, done.err
    r, s = place / "run" / "r", place / "study" / "s"
    canary, audited = place / "canary", place / "table" / "runs.csv"
    simple, one = of_checkpoint(canary), next((s / "runs").iterdir())
    export = ("export", r / "last.ckpt", "--head", place / "run" / "h.safetensors", "--to")
    reads = ("study", "status", s, "--all"), ("study", "audit", s)
    fetch = ("data", "open-images", "fetch", place / "manifest" / "m.csv", "--out")
    fetched = ((*fetch, place / "manifest" / "out", "--base", base, "--timeout", 5),)
    sample = ("data", "open-images", "sample", "--classes", 2, "--metadata", place / "metadata")
    sampled = ((*sample, "--out", place / "metadata" / "o.csv", "--threads", 1),)
    meta = sorted((place / "metadata").glob("*.csv"))
    plan = place / "plan" / "p.yaml"
    ours = (*export, place / "run" / "b.safetensors"), ("score", r / "last.ckpt")
    printed = ("train", "--config", r / "config.yaml", "--print-config")
    audit = ("study", "audit", audited, "--csv", place / "table" / "f.csv")
    results = ("result.json", "eval.json", "scores.json")
    return [
        Kind("checkpoint", r / "last.ckpt", ours, simple),
        Kind(
            "resumed checkpoint",
            r / "last.ckpt",
            (("train", "--resume", r, "--epochs", 2),),
            simple,
        ),
        Kind("plan", plan, (("study", "plan", plan, "--no-trial"),), of_yaml),
        Kind("config", r / "config.yaml", (printed, ("train", "--resume", r)), of_yaml),
        Kind("table", audited, (audit,), of_csv),
        Kind("manifest", place / "manifest" / "m.csv", fetched, of_csv),
        Kind("manifest's JSON", place / "manifest" / "m.csv.json", fetched, of_json),
        *(Kind(f"metadata {n}", path, sampled, of_csv) for n, path in enumerate(meta[:4])),
        Kind("study.yaml", s / "study.yaml", reads, of_yaml),
        *(Kind(name, one / name, reads, of_json) for name in results),
        Kind("run's config in a study", one / "config.yaml", reads, of_yaml),
    ]
