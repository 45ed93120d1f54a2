"""`radial study plan`: the runs as a table, and how long they will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.table import Table

from radial.checks import one_line
from radial.presentation.formats import duration
from radial.study.plan import Planned, Study
from radial.training.config import RunConfig

SHOWN = 60  # runs in the table; the rest is counted


def print_plan(study: Study, runs: Sequence[Planned]) -> None:
    """One line a run: what all share is said once, what differs in columns."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=400)  # into a file or a pipe: nothing is cut
    settings = [run.config.to_dict() for run in runs]
    varying = [k for k in settings[0] if any(s[k] != settings[0][k] for s in settings)]
    usual = {field.name: field.default for field in fields(RunConfig)}
    shared = [
        f"{k} {_plain(v)}"
        for k, v in settings[0].items()
        if k not in varying and v and (v != usual[k] or k in ("data", "epochs"))
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", *varying):
        table.add_column(name.replace("_", " "), no_wrap=True)
    for run, values in list(zip(runs, settings))[:SHOWN]:
        table.add_row(run.id, *(_plain(values[name]) for name in varying))
    console.print(table)
    if len(runs) > SHOWN:
        console.print(f"… and {len(runs) - SHOWN} more", highlight=False)
    console.print(f"all: {', '.join(shared)}", style="bright_black", highlight=False, markup=False)
    console.print(f"{len(runs)} runs ({study.name})", highlight=False, markup=False)


def print_estimate(study: Study, runs: Sequence[Planned], *, threads: int | None) -> None:
    console = Console()
    from radial.study.trial import trials

    try:
        with console.status("") as shown:
            found = trials(study, runs, threads=threads, tell=lambda line: shown.update(line))
    except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: torch's, for memory
        console.print(f"no estimate: {one_line(error)}", highlight=False, markup=False)
        return
    for trial in found:
        console.print(
            f"  {trial.label}: {trial.runs} × {duration(trial.train + trial.rest)}",
            highlight=False,
            markup=False,
        )
    total = sum(trial.seconds for trial in found)
    console.print(
        f"about {duration(total)} on this machine, one run after another, from timed steps",
        highlight=False,
    )


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)
