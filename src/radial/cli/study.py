"""`radial study VERB`: parse, import late, call one function."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from radial.terminal import Parser, dispatch, positive

USAGE = """radial study: many runs from one plan

usage: radial study VERB [options]

  plan     the runs of a study and how long they will take
  run      execute what is not complete yet; again after an interruption
  status   what is done, running, failed and left
  submit   the same as an array job of SLURM
  import   published MLflow exports, into the same form
  audit    runs that did not learn, and what is left without them
  report   one HTML page, Markdown, CSV and Parquet

`radial study VERB --help` lists the options of a verb.
"""


def main(arguments: list[str]) -> int:
    return dispatch("study", USAGE, VERBS, arguments)


def _study_parser(verb: str, text: str) -> Parser:
    """With the study, and what may be changed of it."""
    parser = Parser(f"study {verb}", text)
    parser.add_argument("study", help="YAML file, directory of a study, or preset: " + _presets())
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="change a setting, such as data=cifar10, epochs=5 or seeds=[0,1]",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="also when there are very many runs")
    return parser


def _presets() -> str:
    from radial.study.plan import presets

    return ", ".join(presets())


def _planned(options: argparse.Namespace) -> tuple[Any, Any]:
    from radial.study.plan import LIMIT, read_study

    for change in options.changes:
        if "=" not in change:
            raise ValueError(f"--set takes KEY=VALUE, not {change!r}")
    study = read_study(options.study, options.changes)
    runs = study.runs()
    if len(runs) > LIMIT and not options.yes:
        raise ValueError(f"{len(runs):,} runs are more than {LIMIT:,}: give --yes if that is meant")
    return study, runs


def plan(arguments: list[str]) -> int:
    parser = _study_parser(
        "plan", "The runs of a study, their number, and an estimate of the time."
    )
    parser.add_argument("--no-trial", action="store_true", help="no timed steps, no estimate")
    parser.add_argument("--threads", type=positive, help="of torch, for the estimate")
    options = parser.parse_args(arguments)
    study, runs = _planned(options)
    from radial.study.estimate import print_estimate, print_plan

    print_plan(study, runs)
    if not options.no_trial:
        print_estimate(study, runs, threads=options.threads)
    return 0


def run(arguments: list[str]) -> int:
    parser = _study_parser("run", "Execute what is not complete: train, evaluate, score.")
    parser.add_argument("--out", type=Path, help="directory of the study; by default studies/NAME")
    parser.add_argument("--executor", default="local", help="local or ray")
    parser.add_argument("--workers", type=positive, help="local: processes; one a core, or a GPU")
    parser.add_argument("--threads", type=positive, help="local: of torch in each worker")
    parser.add_argument("--address", help="ray: of the cluster; by default one on this machine")
    parser.add_argument("--cpus", type=positive, default=1, help="ray: of each run")
    parser.add_argument("--gpus", type=float, default=0.0, help="ray: of each run")
    options = parser.parse_args(arguments)
    from radial.checks import check_choice

    check_choice("executor", options.executor, ("local", "ray"))
    study, runs = _planned(options)
    store = _store(options, study)
    from rich.console import Console

    from radial.study.status import count, headline, table

    console = Console(stderr=True)
    console.print(f"{study.name}: {len(runs)} runs in {store.path}", highlight=False, markup=False)
    from radial.study import executors

    try:
        if options.executor == "ray":
            ray = {"address": options.address, "cpus": options.cpus, "gpus": options.gpus}
            states = executors.run_ray(store, **ray, console=console)
        else:
            workers, threads = shares(options.workers, options.threads, len(runs))
            console.print(f"workers: {workers}, threads of each: {threads}", highlight=False)
            states = executors.run_local(store, workers=workers, threads=threads, console=console)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"go on with: radial study run {store.path}") from None
    failed = count(states)["failed"]
    print(headline(states))
    if failed:
        Console().print(table(states, ("failed",)))
        print(f"again with: radial study run {store.path}")
    return 1 if failed else 0


def _store(options: argparse.Namespace, study: Any) -> Any:
    from radial.study.store import STUDY, Store

    given = Path(options.study).expanduser()
    known = given if (given / STUDY).is_file() else None
    out = options.out or known or Path("studies") / study.name
    store = Store(out.resolve())
    store.create(study, tell=_warn)
    return store


def shares(workers: int | None, threads: int | None, runs: int) -> tuple[int, int]:
    """Cores divided among workers: one a core, or one a GPU, but no more than there are runs."""
    from radial.study.executors import gpus

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    workers = workers or max(1, min(runs, len(gpus()) or cores // (threads or 1)))
    return workers, threads or max(1, cores // workers)


def status(arguments: list[str]) -> int:
    parser = Parser("study status", "What is done, running, failed and left.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--all", action="store_true", help="a line for each run")
    options = parser.parse_args(arguments)
    from rich.console import Console

    from radial.study.status import STATES, Watcher, headline, table
    from radial.study.store import STUDY, Store

    store = Store(options.directory)
    if not (store.path / STUDY).is_file() and (imported := len(store.runs())):
        print(f"{imported} imported runs; nothing is planned")
        return 0
    states = Watcher(store, tell=_warn).look()
    print(headline(states))
    which = tuple(STATES) if options.all else ("running", "failed")
    if any(state.state in which for state in states):
        Console().print(table(states, which))
    return 0


def submit(arguments: list[str]) -> int:
    parser = _study_parser("submit", "An array job of SLURM whose tasks work on the plan.")
    parser.add_argument("--out", type=Path, help="directory of the study, seen by all nodes")
    parser.add_argument(
        "--tasks", type=positive, help="of the array; by default a run each, at most 64"
    )
    parser.add_argument("--cpus", type=positive, default=1, help="of each task")
    parser.add_argument("--gpus", type=int, default=0, help="of each task")
    parser.add_argument("--time", help="limit of a task, such as 04:00:00")
    parser.add_argument("--partition")
    parser.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="such as --account=NAME"
    )
    parser.add_argument("--dry-run", action="store_true", help="write the script only")
    options = parser.parse_args(arguments)
    study, runs = _planned(options)
    store = _store(options, study)
    from radial.study.slurm import Array, submit

    array = Array(
        tasks=options.tasks or min(64, len(runs)),
        cpus=options.cpus,
        gpus=options.gpus,
        time=options.time,
        partition=options.partition,
        options=tuple(options.sbatch),
    )
    print(submit(store, array, dry=options.dry_run))
    return 0


def import_(arguments: list[str]) -> int:
    parser = Parser("study import", "Runs from MLflow exports, in the order of their rows.")
    for name, text in (("--mlflow-csv", "training table"), ("--eval-csv", "evaluation table")):
        parser.add_argument(
            name, action="append", nargs="+", type=Path, required=True, metavar="FILE",
            help=f"{text}; may be given several times, in pairs",
        )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="directory of the study")
    options = parser.parse_args(arguments)
    trained, evaluated = (
        [path for group in files for path in group]
        for files in (options.mlflow_csv, options.eval_csv)
    )
    if len(trained) != len(evaluated):
        raise ValueError(f"{len(trained)} training tables but {len(evaluated)} evaluation tables")
    _needs_study()
    from radial.study.importing import import_exports

    import_exports(list(zip(trained, evaluated)), options.out, tell=_warn)
    return 0


def audit(arguments: list[str]) -> int:
    parser = Parser(
        "study audit", "Runs that did not learn, and what correlations are without them."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the flagged runs")
    options = parser.parse_args(arguments)
    _needs_study()
    from rich.console import Console

    from radial.files import check_writable, write_atomically
    from radial.study.analysis.columns import final
    from radial.study.audit import audit, print_audit
    from radial.study.table import directions, read_runs

    check_writable(options.csv)
    runs = final(read_runs(options.directory, tell=_warn))
    found = audit(runs, directions(runs))
    print_audit(found, Console())
    if options.csv is not None:
        write_atomically(options.csv, found.flags.to_csv(index=False))
    return 0


def report(arguments: list[str]) -> int:
    parser = Parser("study report", "One HTML page; Markdown and tables by option.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--html", type=Path, metavar="FILE", help="by default DIR/report.html")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument(
        "--small", action="store_true", help="load plotly.js from its CDN: figures need the network"
    )
    parser.add_argument("--tables", type=Path, metavar="DIR", help="every table as CSV and Parquet")
    options = parser.parse_args(arguments)
    _needs_study()
    from radial.files import check_writable
    from radial.study.report import write_report

    check_writable(options.html, options.markdown)
    if options.tables is not None:
        check_writable(options.tables / "runs.csv")
    for line in write_report(
        options.directory,
        html=options.html or options.directory / "report.html",
        markdown=options.markdown,
        tables=options.tables,
        small=options.small,
        tell=_warn,
    ):
        print(line)
    return 0


def _needs_study() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("pandas", "plotly", "shap", "xgboost") if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise ValueError(f"{names} is not installed: pip install 'radial-ssl[study]'")


def _warn(line: str) -> None:
    print(f"radial: {line}", file=sys.stderr)


VERBS: dict[str, Callable[[list[str]], int]] = {
    "plan": plan,
    "run": run,
    "status": status,
    "submit": submit,
    "import": import_,
    "audit": audit,
    "report": report,
}
