"""What a study rests on: its settings, its evaluation, and the versions that made it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from radial.presentation.formats import listed, plain, several, words
from radial.study.analysis.columns import SETTINGS, final
from radial.study.status import Watcher, count
from radial.study.store import STUDY, Store, read_json
from radial.training.rundir import ENVIRONMENT, SCORES, versions

NOT_VERSIONS = ("seed", "threads", "gpus", "git_of_working_directory", "command")
ANALYSED_WITH = ("radial-ssl", "pandas", "numpy", "scipy", "shap", "xgboost-cpu", "xgboost")
Lines = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Basis:
    name: str
    study: str  # study.yaml, empty where there is none
    facts: dict[str, Lines]
    unfinished: str = ""  # a sentence, where not all that was planned is there


def read_basis(directory: Path, runs: pd.DataFrame) -> Basis:
    """Settings that all runs share, how they were evaluated, versions of training and analysis."""
    path = directory / STUDY
    study = path.read_text(encoding="utf-8") if path.is_file() else ""
    facts = {
        "Runs": list(_runs(runs)),
        "Settings alike in all runs that have them": _alike(runs),
        "Trained and scored with": _versions(directory, runs),
        "Analysed with": _installed(),
    }
    unfinished = _unfinished(directory, runs) if study else ""
    return Basis(name=_name(directory, study), study=study, facts=facts, unfinished=unfinished)


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


def _name(directory: Path, study: str) -> str:
    import yaml

    try:
        values = yaml.safe_load(study) or {}
    except yaml.YAMLError:
        values = {}
    name = values.get("name") if isinstance(values, dict) else None
    return str(name or directory.resolve().name)


def _runs(runs: pd.DataFrame) -> Iterable[tuple[str, str]]:
    last = final(runs)
    yield "runs", f"{len(last):,}"
    if len(last) < len(runs):
        yield "checkpoints on the way", f"{len(runs) - len(last):,}"
    for name in ("verdict", "status", "protocol"):
        if name in runs and runs[name].notna().any():
            counts = runs[name].dropna().value_counts()
            yield (
                {"verdict": "training", "status": "score card", "protocol": "accuracy by"}[name],
                ", ".join(f"{kind} {n}" for kind, n in counts.items()),
            )
    if "test_samples" in runs and runs["test_samples"].notna().any():
        sizes = sorted({int(n) for n in runs["test_samples"].dropna()})
        yield "test images", ", ".join(f"{n:,}" for n in sizes)
    if "seconds" in runs and pd.to_numeric(runs["seconds"], errors="coerce").notna().any():
        total = float(pd.to_numeric(runs["seconds"], errors="coerce").sum())
        yield (
            "time of training",
            f"{total / 3600:,.1f} hours" if total >= 3600 else f"{total / 60:.1f} minutes",
        )
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
    """From environment.json and the score card of each run; how often, where they differ."""
    seen: dict[str, dict[str, int]] = {}
    for run in runs["run"]:
        place = directory / "runs" / str(run)
        found = {k: v for k, v in read_json(place / ENVIRONMENT).items() if k not in NOT_VERSIONS}
        card = read_json(place / SCORES).get("versions")
        if not found and isinstance(card, dict):
            found = card
        for key, value in found.items():
            if isinstance(value, str):
                kinds = seen.setdefault(key, {})
                kinds[value] = kinds.get(value, 0) + 1
    return [
        (key, next(iter(kinds)) if len(kinds) == 1 else
         ", ".join(f"{value} ({n} runs)" for value, n in kinds.items()))
        for key, kinds in seen.items()
    ]  # fmt: skip


def _installed() -> Lines:
    return list(versions(ANALYSED_WITH).items())
