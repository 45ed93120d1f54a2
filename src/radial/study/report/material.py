"""What a report is drawn from: a study's runs and learning curves, their analysis and audit, and
what it all rests on: settings, evaluation, versions.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from radial.documents import parse_yaml
from radial.presentation import duration, listed, plain, several, words
from radial.study.analysis.analyse import Analysis, analyse
from radial.study.analysis.columns import SETTINGS, final, frame
from radial.study.audit import DEAD, Audit, audit
from radial.study.report import charts
from radial.study.results import directions, read_runs
from radial.study.store import STUDY, Store, Tell, Watcher, count, read_json
from radial.training.rundir import ENVIRONMENT, METRICS, MONITOR, SCORES, versions

SHOWN_DIGITS = 3  # of a fraction: percent with one decimal
NOT_VERSIONS = ("seed", "threads", "gpus", "git_of_working_directory", "command")
ANALYSED_WITH = ("radial-ssl", "pandas", "numpy", "scipy", "shap", "xgboost-cpu", "xgboost")
CURVES = ("train_loss", "val_loss", "knn")  # of metrics.csv; every score of monitor.csv
CURVE_COLUMNS = ("data", "method", "head", "run", "series", "epoch", "value")
Lines = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a report is made of, read and computed."""

    name: str
    study: str  # study.yaml, empty where there is none
    facts: Mapping[str, Lines]  # what the study rests on
    unfinished: str  # a sentence, where not all that was planned is there
    runs: pd.DataFrame
    better: Mapping[str, str]
    curves: pd.DataFrame
    analysis: Analysis
    audit: Audit

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by its file's name."""
        return self.analysis.frames() | {
            "audit_counts": self.audit.counts,
            "audit_identical": self.audit.identical,
            "audit_correlations": self.audit.correlations,
            "audit_flags": self.audit.flags,
            "curves": self.curves,
            "runs": self.runs,
        }

    @cached_property
    def datasets(self) -> list[str]:
        return [str(name) for name in dict.fromkeys(self.runs["data"])]

    @cached_property
    def colour(self) -> dict[str, str]:
        """Of each method."""
        return charts.method_colours(self.runs["method"])

    @cached_property
    def settings(self) -> list[str]:
        """What differs between runs of one method, beside head and seed."""
        found = []
        for name in SETTINGS:
            if name in ("data", "method", "head", "seed") or name not in self.runs:
                continue
            used = self.runs[self.runs[name].notna()]
            values = used[name].map(str)
            pairs = set(zip(used["data"], used["method"], used["head"], values))
            if values.nunique() > 1 and len(pairs) > len({pair[:3] for pair in pairs}):
                found.append(name)
        return found

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each run in the table of runs."""
        return {str(run): i for i, run in enumerate(self.runs["run"])}

    @cached_property
    def flags(self) -> dict[str, str]:
        """What the audit found of each run; checkpoints on the way, RUN@EPOCH, have their run's."""
        by_run = dict(zip(self.audit.flags["run"].astype(str), self.audit.flags["flags"]))
        return {run: by_run[run.partition("@")[0]] for run in self.places}

    @cached_property
    def dead(self) -> dict[str, bool]:
        """Whether a run shows no sign of having learned."""
        found = self.audit.flags[list(DEAD)].any(axis=1)
        by_run = dict(zip(self.audit.flags["run"].astype(str), found))
        return {run: bool(by_run[run.partition("@")[0]]) for run in self.places}

    def of(self, table: pd.DataFrame, data: str) -> pd.DataFrame:
        return table[table["data"] == data].reset_index(drop=True) if len(table) else table

    def missing(self, about: str) -> tuple[str, ...]:
        """Why a table is empty, or not whole."""
        if about == "curves":
            return ("no run has a metrics.csv: no learning curves",)
        return tuple(text for table, text in self.analysis.missing if table in ("", about))


def read_report(
    directory: Path | str, *, all_runs: bool = False, tell: Tell | None = None
) -> Report:
    """Read a study and compute all that there is to say of it.

    Args:
        directory: of the study.
        all_runs: also those of earlier plans.
        tell: hears of what was left out or could not be read.

    Raises:
        ValueError: it is not a study, or has no complete run yet.
    """
    directory = Path(directory)
    runs = read_runs(directory, all_runs=all_runs, tell=tell)
    better = directions(runs)
    if "accuracy" not in runs:
        runs["accuracy"] = math.nan
    path = directory / STUDY
    study = path.read_text(encoding="utf-8") if path.is_file() else ""
    return Report(
        name=_name(directory, study),
        study=study,
        facts={
            "Runs": list(_runs(runs)),
            "Settings alike in all runs that have them": _alike(runs),
            "Trained and scored with": _versions(directory, runs),
            "Analysed with": list(versions(ANALYSED_WITH).items()),
        },
        unfinished=_unfinished(directory, runs) if study else "",
        runs=runs,
        better=better,
        curves=read_curves(directory, final(runs)),
        analysis=analyse(runs, better, decimals=SHOWN_DIGITS),
        audit=audit(final(runs), better),
    )


def read_curves(directory: Path, runs: pd.DataFrame) -> pd.DataFrame:
    """Losses, kNN and monitored scores of each run, a row an epoch (or a look) and series.

    ``epoch`` is a fraction where the monitor looked between two epochs. Imported runs have none.
    """
    rows: list[dict[str, Any]] = []
    for about in runs[["data", "method", "head", "run"]].to_dict("records"):
        place = directory / "runs" / str(about["run"])
        trained, looks = _csv(place / METRICS), _csv(place / MONITOR)
        last = trained[-1] if trained else {}
        pace = last.get("epoch", math.nan) / (last.get("step") or math.nan)
        for line in looks:
            line["epoch"] = round(line.get("step", math.nan) * pace, 3)
        for line in [*trained, *looks]:
            found = {name: v for name, v in line.items() if name in CURVES or "@" in name}
            rows += [about | {"series": name, "epoch": line["epoch"], "value": value}
                     for name, value in found.items()]  # fmt: skip
    table = frame(rows, CURVE_COLUMNS)
    never = table.groupby("series")["value"].transform(lambda values: values.isna().all())
    return table[~never.astype(bool)].reset_index(drop=True)


def _csv(path: Path) -> list[dict[str, float]]:
    """The lines of a run's table as numbers, NaN where there is none; none without the file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        return [{k: float(v) if v else math.nan for k, v in line.items()} for line in lines]
    except (OSError, ValueError, TypeError):  # absent, or not what radial writes
        return []


def _name(directory: Path, study: str) -> str:
    try:
        values = parse_yaml(study)
    except ValueError:
        values = {}
    name = values.get("name") if isinstance(values, dict) else None
    return str(name or directory.resolve().name)


def _unfinished(directory: Path, runs: pd.DataFrame) -> str:
    """What is not done of the plan, and what is done but not of the plan."""
    states = Watcher(Store(directory)).look()
    numbers = count(states)
    said = []
    if numbers["done"] < len(states):
        rest = [
            f"{numbers[name]} {name}" for name in ("failed", "running", "left") if numbers[name]
        ]
        said.append(f"{numbers['done']} of {len(states)} planned runs are complete, {listed(rest)}")
    own = final(runs[runs["source"] == ""])["run"]
    if strange := len(set(own) - {state.run.id for state in states}):
        said.append(f"{several(strange, 'run')} of an earlier plan are among them")
    return "; ".join(said)


def _runs(runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    last = final(runs)
    yield "runs", f"{len(last):,}"
    if len(last) < len(runs):
        yield "checkpoints on the way", f"{len(runs) - len(last):,}"
    titles = {"verdict": "training", "status": "score card", "protocol": "accuracy by"}
    for name, title in titles.items():
        if name in runs and runs[name].notna().any():
            counts = runs[name].dropna().value_counts()
            yield title, ", ".join(f"{kind} {n}" for kind, n in counts.items())
    if "test_samples" in runs and runs["test_samples"].notna().any():
        sizes = sorted({int(n) for n in runs["test_samples"].dropna()})
        yield "test images", ", ".join(f"{n:,}" for n in sizes)
    if "seconds" in runs and pd.to_numeric(runs["seconds"], errors="coerce").notna().any():
        yield "time of training", duration(float(pd.to_numeric(runs["seconds"]).sum()))
    for source, group in runs.groupby("source", sort=False):
        if source:
            yield "imported from", f"{source} ({len(group)})"
    imported = runs[runs["verdict"] == "imported"] if "verdict" in runs else runs[:0]
    reasons = imported["reason"].dropna().str.replace("; 0 stands", ", 0 stands")
    said = [part.strip() for reason in reasons for part in reason.split(";")]
    yield from (("import", part) for part in dict.fromkeys(said) if part)


def _alike(runs: pd.DataFrame) -> Lines:
    lines = []
    unknown = ("seed",) if "verdict" in runs and (runs["verdict"] == "imported").all() else ()
    for name in [name for name in SETTINGS if name not in unknown]:
        values = {plain(value) for value in runs[name]} if name in runs else set()
        values.discard("–")
        if len(values) == 1:
            lines.append((words(name), values.pop()))
    return lines


def _versions(directory: Path, runs: pd.DataFrame) -> Lines:
    """From environment.json or the score card of each run; how often, where they differ."""
    seen: dict[str, dict[str, int]] = {}
    for place in (directory / "runs" / str(run) for run in runs["run"]):
        found = {k: v for k, v in read_json(place / ENVIRONMENT).items() if k not in NOT_VERSIONS}
        for key, value in (found or read_json(place / SCORES).get("versions") or {}).items():
            if isinstance(value, str):
                kinds = seen.setdefault(key, {})
                kinds[value] = kinds.get(value, 0) + 1
    return [(key, _counted(kinds)) for key, kinds in seen.items()]


def _counted(kinds: Mapping[str, int]) -> str:
    several_kinds: Iterable[str] = (f"{value} ({n} runs)" for value, n in kinds.items())
    return next(iter(kinds)) if len(kinds) == 1 else ", ".join(several_kinds)
