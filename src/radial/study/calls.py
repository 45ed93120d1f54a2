"""A study in one call: run it, then its table, its report, its audit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.checks import check_choice
from radial.study.executors import run_local, run_ray, shares
from radial.study.plan import Study, from_values, read_study
from radial.study.store import STUDY, State, Store, Tell

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from radial.study.audit import Audit

EXECUTORS = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """A study that was run, or a search; its directory holds everything.

    Args:
        store: its directory.
        states: how each of its runs ended.
    """

    store: Store
    states: tuple[State, ...]

    @property
    def directory(self) -> Path:
        return self.store.path

    @property
    def failed(self) -> dict[str, str]:
        """The runs that failed, and why."""
        return {state.run.id: state.note for state in self.states if state.state == "failed"}

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a complete run, see :mod:`radial.study.results`; of a search a row a trial, see
        :func:`radial.study.tune.table`.
        """
        study = self.store.study()
        if study.tune is not None:
            from radial.study.tune import table

            return table(self.store, study)
        from radial.study.results import read_runs

        found = read_runs(self.directory)
        return found if "accuracy" in found else found.assign(accuracy=math.nan)

    @cached_property
    def best(self) -> Path:
        """The directory of a search's best run.

        Raises:
            ValueError: if it is no search, or has no complete trial.
        """
        if not (self.directory / "best").is_dir():
            raise ValueError(f"{self.directory} is no search with a complete trial")
        return self.directory / "best"

    def told(self) -> str:
        """A search's best settings.

        Returns:
            One line.
        """
        from radial.study.search import search_of
        from radial.study.tune import best

        study = self.store.study()
        chosen = best(self.store, study)
        settings = [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in (chosen.params or {}).items()
        ]
        value = f"{search_of(study).objective} {chosen.value:.4g}"
        return f"best: {self.best} ({chosen.id}, {value}): {', '.join(settings) or 'the defaults'}"

    def heads(self, a: str = "default", b: str = "rbfn") -> pd.DataFrame:
        """Accuracies of two heads, paired by method and seed.

        Args:
            a: the one.
            b: the other.

        Returns:
            A row a method: means, difference, its interval; see
            :func:`radial.study.analysis.paired_heads`.
        """
        from radial.study.analysis import paired_heads

        return paired_heads(self.table, a, b)

    def audit(self) -> Audit:
        """Looks for runs that did not learn.

        Returns:
            What :func:`radial.study.audit.audit` found.
        """
        from radial.study.analysis.columns import final
        from radial.study.audit import audit
        from radial.study.results import directions, read_runs

        runs = final(read_runs(self.directory))
        return audit(runs, directions(runs))

    def report(self, html: Path | str | None = None, **options: Any) -> Path:
        """One page.

        Args:
            html: its file.
            **options: of :func:`radial.study.report.write_report`, or for a search of
                :func:`radial.study.report.search.write_search`.

        Returns:
            Its file, by default report.html in the study's directory.
        """
        path = Path(html) if html is not None else self.directory / "report.html"
        if self.store.study().tune is not None:
            from radial.study.report.search import write_search

            write_search(self.store, html=path, **options)
            return path
        from radial.study.report import write_report

        write_report(self.directory, html=path, **options)
        return path


def run(
    plan: Study | Mapping[str, Any] | str | Path,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    executor: str = "local",
    ray: Mapping[str, Any] | None = None,
    console: Console | None = None,
    tell: Tell | None = None,
) -> StudyResult:
    """Run what a study has not complete yet, and wait for it; again after an interruption: goes on.

    Args:
        plan: a :class:`Study`, its values as in YAML, a file, a study's directory or a preset.
            Values without ``evaluate`` are evaluated if the data have labels, and so is a search.
        out: directory of the study; by default that of ``plan``, else studies/NAME.
        workers: processes of the local executor; by default one a core, or a GPU.
        threads: of torch in each.
        executor: local or ray.
        ray: ``address``, ``cpus`` and ``gpus`` of the Ray executor.
        console: where progress is shown; by default stderr.
        tell: hears of what changed in a directory that was there.

    Returns:
        How its runs ended, and all that can be read of them.

    Raises:
        ValueError: if the plan makes no sense, or ``out`` is something else.

    Example:
        >>> import radial.study
        >>> result = radial.study.run("quick", out="quick", workers=2)  # doctest: +SKIP
        >>> result.table.groupby("head")["accuracy"].mean()  # doctest: +SKIP
    """
    from rich.console import Console

    check_choice("executor", executor, EXECUTORS)
    study = _study(plan)
    if out is None and isinstance(plan, str | Path) and (Path(plan).expanduser() / STUDY).is_file():
        out = Path(plan)
    store = Store(Path(out or Path("studies") / study.name).expanduser().resolve())
    if study.tune is not None or (isinstance(plan, Mapping) and "evaluate" not in plan):
        study = _as_labelled(study)
    store.create(study, tell=tell)
    console, runs = console or Console(stderr=True), study.runs()
    console.print(f"{study.name}: {len(runs)} runs in {store.path}", highlight=False, markup=False)
    if executor == "ray":
        how = {"address": None, "cpus": 1, "gpus": 0.0} | dict(ray or {})
        states = run_ray(store, **how, console=console)
    else:
        workers, threads = shares(workers, threads, len(runs))
        console.print(f"workers: {workers}, threads of each: {threads}", highlight=False)
        states = run_local(store, workers=workers, threads=threads, console=console)
    if study.tune is not None:
        from radial.study.tune import finish

        finish(store)
    return StudyResult(store=store, states=tuple(states))


def _study(plan: Study | Mapping[str, Any] | str | Path) -> Study:
    if isinstance(plan, Study):
        return plan
    if isinstance(plan, Mapping):
        return from_values({"name": "study", **plan})
    return read_study(plan)


def _as_labelled(study: Study) -> Study:
    """Without evaluation where no data have labels and nothing more is said of it."""
    from radial.data import load_data

    if study.evaluate is None or study.evaluate:
        return study
    configs = {run.config.data: run.config for run in study.runs()}.values()
    if any(
        load_data(c.data, root=c.data_root, image_size=c.image_size, split=c.split).classes
        for c in configs
    ):
        return study
    return replace(study, evaluate=None)
