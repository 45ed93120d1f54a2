"""What is done, running, failed and left of a study, and how long it will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from radial.presentation import duration
from radial.study.claims import live
from radial.study.plan import Planned
from radial.study.store import CHECKPOINTS, Store, Tell
from radial.training.rundir import EVALUATION, METRICS, RESULT, SCORES

STEPS = {
    RESULT: "training",
    EVALUATION: "evaluating",
    SCORES: "scoring",
    CHECKPOINTS: "its checkpoints",
}
STATES = {"done": "green", "running": "cyan", "failed": "red", "left": "bright_black"}


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
            return STEPS[step]
        try:
            lines = (self.store.run(run.id) / METRICS).read_text().count("\n")
        except OSError:
            lines = 1
        return f"{STEPS[step]}, epoch {max(1, lines)} of {run.config.epochs}"


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
