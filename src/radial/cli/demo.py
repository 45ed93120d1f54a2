"""`make demo`: a small study on embedded digits, from scratch, and its report.

SimCLR and MoCo with LightlySSL's head, radial's and the published one, at three learning rates
and two seeds: trained, evaluated with labels, scored without, by `radial study`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from radial.cli.study import shares
from radial.study.executors import run_local
from radial.study.plan import read_study
from radial.study.report import write_report
from radial.study.store import Store
from radial.study.table import read_runs


def table(directory: Path) -> Table:
    """For each method and head: how its runs ended, and how accurate they are."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("method", "head", "runs", "verdict", "loss", "of a constant", "accuracy"):
        shown.add_column(name, justify="left" if name in ("method", "head", "verdict") else "right")
    runs = read_runs(directory)
    for (method, head), group in runs.groupby(["method", "head"], sort=False):
        low, high = group["accuracy"].min(), group["accuracy"].max()
        shown.add_row(
            method,
            head,
            str(len(group)),
            ", ".join(group["verdict"].unique()),
            f"{group['train_loss'].median():.2f}",
            f"{group['constant_loss'].median():.2f}",
            f"{low:.1%} – {high:.1%}",
        )
    start = runs["start_accuracy"]
    shown.caption = f"the backbone before its first step: {start.min():.1%} – {start.max():.1%}"
    shown.caption_justify = "left"
    return shown


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m radial.cli.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the study")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    options = parser.parse_args(arguments)
    console, began = Console(), time.monotonic()
    try:
        study = read_study("quick", options.changes)
        store = Store(options.out.resolve())
        store.create(study)
    except ValueError as error:
        parser.error(str(error))
    workers, threads = shares(None, None, len(study.runs()))
    console.print(f"{len(study.runs())} small runs on {workers} workers", highlight=False)
    states = run_local(store, workers=workers, threads=threads, console=console)
    if failed := [state for state in states if state.state == "failed"]:
        parser.exit(1, f"{len(failed)} runs failed, such as {failed[0].run.id}: {failed[0].note}\n")
    console.print(table(store.path), highlight=False)
    lines = write_report(store.path, html=options.out / "report.html")
    console.print(f"\n{time.monotonic() - began:.0f} s", highlight=False)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
