"""`radial study VERB` and `radial demo`: parse, import late, call one function."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from radial.checks import needs
from radial.cli.terminal import NUMBER, POSITIVE, WHOLE, Commands, Parser, Run, warn

LIBRARIES = ("pandas", "plotly", "shap", "xgboost")


def _add_study(parser: Parser) -> None:
    """The study, and what may be changed of it."""
    add = parser.add_argument
    add("study", metavar="STUDY", help=f"YAML file, directory of a study, or preset: {_presets()}")
    add(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="change a setting, such as data=cifar10, epochs=5 or seeds=[0,1]",
    )  # fmt: skip
    add("--yes", action="store_true", help="also when there are very many runs")


def _presets() -> str:
    from radial.study.plan import presets

    return ", ".join(presets())


def _planned(options: Namespace) -> tuple[Any, Any]:
    needs("study", "yaml", *LIBRARIES)
    from radial.study.plan import LIMIT, read_study

    study = read_study(options.study, options.changes)
    runs = study.runs()
    if len(runs) > LIMIT and not options.yes:
        raise ValueError(f"{len(runs):,} runs are more than {LIMIT:,}: give --yes if that is meant")
    return study, runs


def plan(parser: Parser) -> Run:
    _add_study(parser)
    parser.add_argument("--no-trial", action="store_true", help="no timed steps, no estimate")
    parser.add_argument("--threads", type=POSITIVE, metavar="N", help="of torch, for the estimate")
    return _plan


def _plan(options: Namespace) -> int:
    study, runs = _planned(options)
    from radial.study.estimate import print_estimate, print_plan

    print_plan(study, runs)
    if not options.no_trial:
        print_estimate(study, runs, threads=options.threads)
    return 0


def run(parser: Parser) -> Run:
    _add_study(parser)
    _add_executor(parser)
    return _run


def _add_executor(parser: Parser) -> None:
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="directory of the study; by default studies/NAME")
    add("--executor", default="local", metavar="NAME", help="local or ray")
    add("--workers", type=POSITIVE, metavar="N", help="local: processes; one a core, or a GPU")
    add("--threads", type=POSITIVE, metavar="N", help="local: of torch in each worker")
    add("--address", help="ray: of the cluster; by default one on this machine")
    add("--cpus", type=POSITIVE, metavar="N", default=1, help="ray: of each run (1)")
    add("--gpus", type=NUMBER, metavar="X", default=0.0, help="ray: of each run (0)")


def _run(options: Namespace) -> int:
    from radial.checks import check_choice

    check_choice("executor", options.executor, ("local", "ray"))
    study, _ = _planned(options)
    return 1 if _executed(options, study, "study run").failed else 0


def _executed(options: Namespace, study: Any, again: str) -> Any:
    """Run a study, and say how its runs ended."""
    from rich.console import Console

    from radial.study.calls import run
    from radial.study.store import headline, table

    out = _place(options, study)
    ray = {"address": options.address, "cpus": options.cpus, "gpus": options.gpus}
    how = {"workers": options.workers, "threads": options.threads, "executor": options.executor}
    try:
        result = run(study, out=out, ray=ray, **how, tell=warn)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"go on with: radial {again} {out}") from None
    print(headline(result.states))
    if result.failed:
        Console().print(table(result.states, ("failed",)))
        print(f"again with: radial {again} {out}")
    return result


def _place(options: Namespace, study: Any) -> Path:
    """The directory of a study."""
    from radial.study.store import STUDY

    given = Path(options.study or "").expanduser()
    known = given if options.study and (given / STUDY).is_file() else None
    return (options.out or known or Path("studies") / study.name).resolve()


def tune(parser: Parser) -> Run:
    """Trials in one directory, which is that of a study; again after an interruption: goes on."""
    add = parser.add_argument
    add("study", nargs="?", metavar="PLAN", help="YAML file of a study, or directory of a search")
    add("--preset", metavar="METHOD", help="without a PLAN: the space of a method")
    add(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="change a setting, such as data=cifar10 or base_lr={low: 0.01, high: 1, log: true}",
    )  # fmt: skip
    add("--trials", type=POSITIVE, metavar="N", help="settings to try, the defaults included (30)")
    add("--score", metavar="NAME", help="what to choose by (view_retrieval@backbone)")
    add(
        "--labels", nargs="?", const=True, type=_share, metavar="SHARE",
        help="choose by a probe on the validation images instead, that sees all training labels "
        "or a share, such as 0.01",
    )  # fmt: skip
    add("--confirm", type=WHOLE, metavar="N", help="seeds that confirm the best (3)")
    add("--against", type=Path, metavar="DIR", help="a search to compare with, such as by labels")
    add("--dry-run", action="store_true", help="write the directory only, for radial study submit")
    _add_executor(parser)
    return _tune


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no share such as 0.01; PLAN comes first") from None


def _tune(options: Namespace) -> int:
    needs("tune", "optuna", "pandas", "plotly")
    from radial.checks import check_choice

    check_choice("executor", options.executor, ("local", "ray"))
    from radial.scoring.leaderboard import hints
    from radial.study.plan import given_changes, read_study
    from radial.study.search import as_search, preset_search, search_of

    if (options.study is None) == (options.preset is None):
        raise ValueError("give a PLAN, or --preset METHOD")
    if options.preset is not None:
        study = preset_search(options.preset, given_changes(options.changes))
    else:
        study = read_study(options.study, options.changes)
    names = ("trials", "score", "labels", "confirm")
    study = as_search(study, **{name: getattr(options, name) for name in names})
    runs = study.runs()
    search = search_of(study)
    for line in [] if search.labels else hints(search.score, tuple(study.methods)):
        warn(line)
    if options.dry_run:
        from radial.study.store import Store

        store = Store(_place(options, study))
        store.create(study, tell=warn)
        print(f"{len(runs)} runs planned: radial study submit {store.path}")
        return 0
    result = _executed(options, study, "tune")
    if (result.directory / "best").is_dir():
        print(result.told())
        print(f"report: {result.report(against=options.against)}")
    return 1 if result.failed else 0


def status(parser: Parser) -> Run:
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--all", action="store_true", help="a line for each run")
    return _status


def _status(options: Namespace) -> int:
    from rich.console import Console

    from radial.study.store import STATES, Store, Watcher, headline, left_out, table

    store = Store(options.directory)
    states = Watcher(store, tell=warn).look()
    print(headline(states))
    if others := store.unplanned({state.run.id for state in states}):
        print(left_out(others))
    which = tuple(STATES) if options.all else ("running", "failed")
    if any(state.state in which for state in states):
        Console().print(table(states, which))
    return 0


def submit(parser: Parser) -> Run:
    _add_study(parser)
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="directory of the study, seen by all nodes")
    add("--tasks", type=POSITIVE, metavar="N", help="of the array; a run each, at most 64")
    add("--cpus", type=POSITIVE, metavar="N", default=1, help="of each task (1)")
    add("--gpus", type=WHOLE, metavar="N", default=0, help="of each task (0)")
    add("--time", help="limit of a task, such as 04:00:00")
    add("--partition", metavar="NAME", help="of the cluster")
    add("--sbatch", action="append", default=[], metavar="OPTION", help="such as --account=NAME")
    add("--dry-run", action="store_true", help="write the script only")
    return _submit


def _submit(options: Namespace) -> int:
    study, runs = _planned(options)
    from radial.study.executors import Array, submit
    from radial.study.store import Store

    store = Store(_place(options, study))
    store.create(study, tell=warn)

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


def import_(parser: Parser) -> Run:
    for name in ("--mlflow-csv", "--eval-csv", "--out"):
        parser.add_argument(name, nargs="+", action="append")
    return _import


def _import(options: Namespace) -> int:
    raise ValueError(
        "`study import` is gone: `study audit` and `study report` read a table of results, "
        "a .parquet or .csv; studies/published_tables.py makes one of published MLflow exports"
    )


def _add_results(parser: Parser) -> None:
    """A study's runs, or a table of them."""
    add = parser.add_argument
    add("runs", type=Path, metavar="STUDY", help="its directory, or a .parquet or .csv of results")
    add("--all-runs", action="store_true", help="also those of earlier plans of the directory")


def audit(parser: Parser) -> Run:
    _add_results(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the flagged runs")
    return _audit


def _audit(options: Namespace) -> int:
    needs("study", *LIBRARIES)
    from rich.console import Console

    from radial.files import check_writable, write_atomically
    from radial.study.analysis.columns import final
    from radial.study.audit import audit, print_audit
    from radial.study.results import directions, guarded, read_runs

    check_writable(options.csv)
    runs = final(read_runs(options.runs, all_runs=options.all_runs, tell=warn))
    found = audit(runs, directions(runs))
    print_audit(found, Console())
    if options.csv is not None:
        write_atomically(options.csv, guarded(found.flags).to_csv(index=False))
    return 0


def report(parser: Parser) -> Run:
    _add_results(parser)
    add = parser.add_argument
    add("--html", type=Path, metavar="FILE", help="by default report.html beside the runs")
    add("--markdown", type=Path, metavar="FILE", help="the same as Markdown")
    add("--small", action="store_true", help="plotly.js from its CDN: figures need the network")
    add("--tables", type=Path, metavar="DIR", help="every table as CSV and Parquet")
    return _report


def _report(options: Namespace) -> int:
    needs("study", *LIBRARIES)
    from radial.files import check_writable
    from radial.study.report import write_report
    from radial.study.store import STUDY, Store

    check_writable(options.html, options.markdown)
    if (options.runs / STUDY).is_file() and Store(options.runs).study().tune is not None:
        from radial.study.report.search import write_search

        page = options.html or options.runs / "report.html"
        print(f"report: {write_search(Store(options.runs), html=page, small=options.small)}")
        return 0
    if options.tables is not None:
        check_writable(options.tables / "runs.csv")
    folder = options.runs.parent if options.runs.is_file() else options.runs
    for line in write_report(
        options.runs,
        html=options.html or folder / "report.html",
        markdown=options.markdown,
        tables=options.tables,
        small=options.small,
        all_runs=options.all_runs,
        tell=warn,
    ):
        print(line)
    return 0


def demo(parser: Parser) -> Run:
    """SimCLR and MoCo with LightlySSL's head, radial's and the published one, at three learning
    rates and two seeds: trained, evaluated with labels, scored without.
    """
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("demo"), help="folder (demo)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    return _demo


def _demo(options: Namespace) -> int:
    needs("study", *LIBRARIES)
    began = time.monotonic()
    options.study, options.yes, options.executor = "quick", False, "local"
    options.workers = options.threads = options.address = None
    options.cpus, options.gpus = 1, 0.0
    if failed := _run(options):
        return failed
    from rich.console import Console

    from radial.study.report import write_report
    from radial.study.results import overview, read_runs

    Console().print(overview(read_runs(options.out)), highlight=False)
    print(f"\n{time.monotonic() - began:.0f} s")
    for line in write_report(options.out, html=options.out / "report.html"):
        print(line)
    return 0


COMMANDS: Commands = {
    "plan": ("the runs of a study and how long they will take", plan),
    "run": ("train, evaluate and score what is not complete yet", run),
    "status": ("what is done, running, failed and left", status),
    "submit": ("the same as an array job of SLURM", submit),
    "import": ("gone: audit and report read a table of results", import_),
    "audit": ("runs that did not learn, and correlations without them", audit),
    "report": ("one HTML page; Markdown and tables by option", report),
}
