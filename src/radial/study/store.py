"""The directory of a study is the truth: what it holds is done, any table is derived from it.

    study.yaml               the study, with the version of this format
    runs/ID/config.yaml      written by training, with metrics.csv and last.ckpt
    runs/ID/result.json      training is complete
    runs/ID/eval.json        evaluation is complete
    runs/ID/scores.json      scoring is complete
    runs/ID/checkpoints.json both, of the checkpoints that were kept on the way
    trials/ID.json           of a search: what a run was given, and its scores (see tune.py)
    failures/ID.json         what went wrong the last time; gone once the run is complete
    start/KEY.json           accuracy of a backbone before the first step
    claims/ID.N              who works on a run (see claims.py)
    logs/ID.log              what training printed

Each file is whole or not there. What cannot be read is reported and counts as not done; it is
moved aside, never deleted. :class:`Watcher` tells what is done, running, failed and left. Light to
import: no torch.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from radial.documents import parse_json
from radial.files import sweep, write_atomically, write_json
from radial.presentation import duration
from radial.study.claims import live
from radial.study.plan import Planned, Study, read_study
from radial.study.search import unlike
from radial.training.config import RunConfig
from radial.training.rundir import EVALUATION, METRICS, RESULT, SCORES

STUDY, CHECKPOINTS = "study.yaml", "checkpoints.json"
NEEDED = {  # file: a key it must have
    RESULT: "verdict",
    EVALUATION: "probes",
    SCORES: "scores",
    CHECKPOINTS: "rows",
}
Tell = Callable[[str], None]
STEP_WORDS = {
    RESULT: "training",
    EVALUATION: "evaluating",
    SCORES: "scoring",
    CHECKPOINTS: "its checkpoints",
}
STATES = {"done": "green", "running": "cyan", "failed": "red", "left": "bright_black"}


@dataclass(frozen=True)
class Store:
    """A study's directory."""

    path: Path

    def create(self, study: Study, tell: Tell | None = None) -> None:
        """Write the study down; an earlier form of it is kept beside, and its runs stay."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, not a study's directory")
        file = self.path / STUDY
        for folder in (self.path, *(self.path / name for name in ("start", "failures", "trials"))):
            sweep(folder)
        if self.path.is_dir() and not file.is_file() and any(self.path.iterdir()):
            raise ValueError(f"{self.path} is not empty and not a study: choose another --out")
        known = self.study() if file.is_file() else None
        before = () if known is None else known.runs()  # of a version that can be read
        begun = known is not None and any(self.path.glob("trials/*.json"))
        if known and begun and (other := unlike(known, _placed(study))):
            raise ValueError(
                f"{self.path} holds the trials of a search with another {', '.join(other)}: "
                "choose another --out"
            )
        text = yaml.safe_dump(_placed(study).to_dict(), sort_keys=False)
        if file.is_file() and file.read_text(encoding="utf-8") != text:
            kept = _beside(file, "before")
            write_atomically(kept, file.read_text(encoding="utf-8"))
            gone = {run.id for run in before} - {run.id for run in _placed(study).runs()}
            if tell is not None:
                tell(f"{file} changes: {len(gone)} of its runs are not planned any more; "
                     f"the old form is {kept.name}")  # fmt: skip
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            write_atomically(file, text)
        for name in ("runs", "claims"):
            (self.path / name).mkdir(exist_ok=True)

    def study(self) -> Study:
        if not (self.path / STUDY).is_file():
            raise ValueError(f"{self.path} is not a study: it has no {STUDY}")
        try:
            return read_study(self.path)
        except ValueError as error:
            file = str(self.path / STUDY)
            raise ValueError(str(error) if file in str(error) else f"{file}: {error}") from error

    def run(self, run: str) -> Path:
        return self.path / "runs" / run

    def runs(self) -> list[str]:
        """The ids of all that has a directory, of this plan and of earlier ones."""
        place = self.path / "runs"
        return sorted(p.name for p in place.iterdir() if p.is_dir()) if place.is_dir() else []

    def unplanned(self, plan: Container[str]) -> list[str]:
        """The ids of runs of earlier plans: they stay, but are not counted with those of this."""
        return [run for run in self.runs() if run not in plan]

    def steps(self, study: Study) -> dict[str, str]:
        """The files that make a run of this study complete, and the settings each was made with."""
        evaluation, scoring = study.evaluation("digits"), study.scoring("digits")
        asked = {RESULT: ""}
        if evaluation is not None:
            asked[EVALUATION] = _digest(evaluation)
        if scoring is not None:
            asked[SCORES] = _digest(scoring)
        if study.checkpoints:
            epochs = "" if study.checkpoints is True else f" of {sorted(study.checkpoints)}"
            asked[CHECKPOINTS] = _digest(evaluation, scoring) + epochs
        return asked

    def missing(self, run: str, steps: Mapping[str, str], tell: Tell | None = None) -> list[str]:
        """The steps that a run still needs, in order: not there, not whole, or otherwise made."""
        found = {name: self.read(run, name, tell) for name in steps}
        return [name for name, asked in steps.items() if not made_as(found[name], asked)]

    def read(self, run: str, name: str, tell: Tell | None = None) -> dict[str, Any] | None:
        """A step's file, or None where it is not there or not whole."""
        path = self.run(run) / name
        try:
            values = parse_json(path.read_bytes())
            if not isinstance(values, dict) or NEEDED[name] not in values:
                raise ValueError("not what radial writes there")
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:  # of JSON and of UTF-8 too
            if tell is not None:
                tell(f"{path} cannot be read and counts as not done: {error}")
            return None
        return values

    def progress(self, run: str) -> list[int]:
        """How far a run is: steps that are done, epochs trained."""
        done = sum((self.run(run) / name).is_file() for name in NEEDED)
        try:
            return [done, (self.run(run) / METRICS).read_bytes().count(b"\n")]
        except OSError:
            return [done, 0]

    def set_aside(self, run: str, name: str) -> None:
        """Make room for a step's file without losing one that could not be read."""
        path = self.run(run) / name
        if path.is_file() and self.read(run, name) is None:
            os.replace(path, _beside(path, "unreadable"))

    def fail(self, run: str, step: str, error: str, session: str) -> None:
        values = {
            "error": error,
            "step": step,
            "session": session,
            "attempts": self.failure(run).get("attempts", 0) + 1,
        }
        write_json(self._failure(run), values)

    def failure(self, run: str) -> dict[str, Any]:
        """What went wrong the last time; empty where nothing did."""
        return read_json(self._failure(run))

    def forgive(self, run: str) -> None:
        self._failure(run).unlink(missing_ok=True)

    def _failure(self, run: str) -> Path:
        return self.path / "failures" / f"{run}.json"

    def start_file(self, config: RunConfig, asked: str) -> Path:
        """Where the accuracy of a run's untrained backbone is kept: shared by many runs."""
        names = ("data", "split", "image_size", "backbone", "weights", "seed")
        values = {name: getattr(config, name) for name in names} | {"asked": asked}
        key = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
        return self.path / "start" / f"{key}.json"


def read_json(path: Path) -> dict[str, Any]:
    """What a file holds; nothing where it is not there or not whole."""
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def made_as(values: Mapping[str, Any] | None, asked: str) -> bool:
    """Whether a step's file is there and was made with the settings that are asked for."""
    return values is not None and (not asked or values.get("asked") == asked)


def left_out(runs: Sequence[str]) -> str:
    """The one line on runs of earlier plans."""
    several = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    return f"{several} of earlier plans left out; audit and report take them in with --all-runs"


def _beside(path: Path, what: str) -> Path:
    """A name that is free: FILE.what-1, FILE.what-2 and so on."""
    names = (path.with_name(f"{path.name}.{what}-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


# What came after the first studies counts only where it is chosen: nothing is scored again for it.
LATER = (("precision", "32"),)


def _digest(*settings: Any) -> str:
    """Of what decides about a step's file; not of where and how it was computed."""
    left_out = ("data", "data_root", "batch", "cache", "max_bad_images", "device")
    values = [
        s
        and {
            f.name: getattr(s, f.name)
            for f in fields(s)
            if f.name not in left_out and (f.name, getattr(s, f.name)) not in LATER
        }
        for s in settings
    ]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def _placed(study: Study) -> Study:
    """With absolute paths: a study is worked on from anywhere."""

    def place(value: Any) -> Any:
        if isinstance(value, list):
            return [place(item) for item in value]
        kind, colon, path = str(value).partition(":")
        return f"{kind}:{Path(path).expanduser().resolve()}" if colon and path else value

    def placed(group: Mapping[str, Any]) -> dict[str, Any]:
        found = {k: place(v) if k == "data" else v for k, v in group.items()}
        if found.get("data_root"):
            found["data_root"] = str(Path(found["data_root"]).expanduser().resolve())
        return found

    return replace(
        study,
        constants=placed(study.constants),
        grid=placed(study.grid),
        methods={name: placed(group) for name, group in study.methods.items()},
        heads={name: placed(group) for name, group in study.heads.items()},
    )


@dataclass(frozen=True, kw_only=True)
class State:
    run: Planned
    state: str  # one of STATES
    note: str = ""  # step and epoch, or the error
    seconds: float = 0.0  # of all its steps


class Watcher:
    """Looks at a study again and again; what is complete is read once."""

    def __init__(self, store: Store, tell: Tell | None = None) -> None:
        self.store, self.tell = store, tell
        study = store.study()
        self.plan, self.steps = study.runs(), store.steps(study)
        self._done: dict[str, State] = {}

    def look(self) -> list[State]:
        running = live(self.store.path / "claims")
        return [self._done.get(run.id) or self._state(run, running) for run in self.plan]

    def _state(self, run: Planned, running: set[str]) -> State:
        missing = self.store.missing(run.id, self.steps, self.tell)
        if not missing:
            self._done[run.id] = State(run=run, state="done", seconds=self._seconds(run))
            return self._done[run.id]
        if run.id in running:
            return State(run=run, state="running", note=self._progress(run, missing[0]))
        if failure := self.store.failure(run.id):
            return State(run=run, state="failed", note=str(failure.get("error", "")))
        return State(run=run, state="left")

    def _seconds(self, run: Planned) -> float:
        found: list[dict[str, Any]] = [self.store.read(run.id, name) or {} for name in self.steps]
        return sum(float(values.get("seconds") or 0.0) for values in found)

    def _progress(self, run: Planned, step: str) -> str:
        if step != RESULT:
            return STEP_WORDS[step]
        try:
            lines = (self.store.run(run.id) / METRICS).read_text().count("\n")
        except OSError:
            lines = 1
        return f"{STEP_WORDS[step]}, epoch {max(1, lines)} of {run.config.epochs}"


def count(states: Sequence[State]) -> Counter[str]:
    return Counter(state.state for state in states)


def headline(states: Sequence[State], workers: int = 1) -> str:
    """``12 of 24 done · 2 running · 10 left · about 6 min``"""
    numbers = count(states)
    parts = [f"{numbers['done']} of {len(states)} done"]
    parts += [f"{numbers[name]} {name}" for name in ("running", "failed", "left") if numbers[name]]
    times = [state.seconds for state in states if state.state == "done" and state.seconds > 0]
    waiting = numbers["left"] + numbers["running"] / 2
    if times and waiting:
        parts.append(f"about {duration(waiting * sum(times) / len(times) / workers)} left")
    elif times:
        parts.append(f"{duration(sum(times))} of work")
    return " · ".join(parts)


def table(states: Sequence[State], which: Sequence[str] = tuple(STATES)) -> Table:
    """A line a run, of the states asked for."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", ""):
        shown.add_column(name, no_wrap=name != "")
    for state in states:
        if state.state in which:
            note = state.note or (duration(state.seconds) if state.seconds else "")
            shown.add_row(state.run.id, Text(state.state, style=STATES[state.state]), Text(note))
    return shown
