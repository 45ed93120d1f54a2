"""From a study's directory to one frame: a row a complete run, ready for analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from radial.checks import one_line
from radial.study.plan import MACHINE
from radial.study.store import (
    CHECKPOINTS,
    SOURCE,
    STUDY,
    Store,
    Tell,
    read_json,
)
from radial.training.config import RunConfig
from radial.training.rundir import CONFIG, EVALUATION, RESULT, SCORES

PROTOCOLS = ("exact", "published", "paper")  # the first that a run has is its accuracy
CLASSIFICATION = ("accuracy", "precision", "recall", "f1")
OF_RESULT = (
    "verdict", "reason", "train_loss", "val_loss", "constant_loss", "spread", "steps", "seconds",
    "images", "head_health",
)  # fmt: skip
ONLY_RBFN = (
    "num_kernels", "radial_function", "distance", "normalize", "residual", "head_batch_norm",
    "calibrate", "kernel_lr_scale", "shape_lr_scale",
)  # fmt: skip
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_runs(directory: Path | str, *, tell: Tell | None = None) -> pd.DataFrame:
    """All complete runs of a study, planned ones in the order of the plan, then imported ones.

    Columns: ``run, source, index``; every setting of the run; its result; ``accuracy, precision,
    recall, f1`` with their interval; ``start_accuracy`` of the backbone before the first step;
    and one column ``name@layer`` a score.
    """
    store = Store(Path(directory))
    if not (store.path / "runs").is_dir():
        raise ValueError(f"{directory} is not a study: it has no runs")
    places: dict[str, int] = {}
    steps = {RESULT: "", EVALUATION: ""}
    if (store.path / STUDY).is_file():
        study = store.study()
        places = {run.id: run.index for run in study.runs()}
        steps = store.steps(study)
    rows = []
    for run in store.runs():
        source = read_json(store.run(run) / SOURCE)
        needed = {RESULT: "", EVALUATION: ""} if source else steps
        found = {name: store.read(run, name, tell) for name in needed}
        if any(values is None for values in found.values()):
            continue
        if old := [
            name for name, asked in steps.items() if not source and _differs(found[name], asked)
        ]:
            if tell is not None:
                tell(f"{store.run(run) / old[0]} was made with other settings: not done")
            continue
        try:
            row = _row(store, run, source, found, places)
            kept = (found.get(CHECKPOINTS) or {}).get("rows", [])
            rows += [row, *(_intermediate(row, one) for one in kept)]
        except (OSError, yaml.YAMLError, TypeError, ValueError, KeyError, AttributeError) as error:
            if tell is not None:
                why = one_line(error)
                tell(f"{store.run(run)} cannot be read and counts as not done: {why}")
    if not rows:
        raise ValueError(f"{directory} has no complete run yet")
    rows.sort(key=lambda row: (row["source"], row["index"]))  # "" first: those of the plan
    return pd.DataFrame(rows)


def _differs(values: Mapping[str, Any] | None, asked: str) -> bool:
    return bool(asked) and values is not None and values.get("asked") != asked


def _row(
    store: Store,
    run: str,
    source: Mapping[str, Any],
    found: Mapping[str, Any],
    places: Mapping[str, int],
) -> dict[str, Any]:
    directory = store.run(run)
    settings = yaml.load((directory / CONFIG).read_text(encoding="utf-8"), Loader)
    if not isinstance(settings, dict):
        raise ValueError(f"{CONFIG} holds no settings")
    names = [f.name for f in fields(RunConfig) if f.name not in (*MACHINE, "precision", "knn")]
    of_rbfn = () if str(settings.get("head")).startswith("rbfn") else ONLY_RBFN
    row: dict[str, Any] = {
        "run": run,
        "source": source.get("source", ""),
        "index": source.get("index", places.get(run, len(places))),
        **{name: None if name in of_rbfn else settings.get(name) for name in names},
    }
    result, evaluation, card = (found.get(name) or {} for name in (RESULT, EVALUATION, SCORES))
    row |= {name: result.get(name) for name in OF_RESULT}
    row |= {"epoch": result.get("epochs"), "train_knn": result.get("knn")}
    row |= _labels(evaluation) | _card(card)
    start = _labels(_start(store, evaluation.get("start")))
    return row | {f"start_{name}": start.get(name) for name in CLASSIFICATION}


def _intermediate(row: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a checkpoint that was kept on the way: the run's, but for what was measured."""
    epoch = kept["epoch"]
    known: dict[str, Any] = {"run": f"{row['run']}@{epoch}", "epoch": epoch}
    known |= {"train_loss": kept["train_loss"], "val_loss": None, "spread": None}
    known |= {"verdict": None, "reason": None, "seconds": None}
    known["steps"] = round(row["steps"] * epoch / row["epoch"])
    return {**row, **known, **_labels(kept.get("evaluation", {})), **_card(kept.get("card", {}))}


def _labels(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracies; of a run that diverged none, and its verdict."""
    row: dict[str, Any] = {
        "knn": evaluation.get("knn", {}).get("accuracy"),
        "knn_1pct": evaluation.get("knn_few", {}).get("accuracy"),
    }
    if "verdict" in evaluation:
        row |= {name: evaluation[name] for name in ("verdict", "reason")}
        row |= dict.fromkeys((*CLASSIFICATION, "accuracy_low", "accuracy_high"))
    probes = evaluation.get("probes", {})
    if protocol := next((name for name in PROTOCOLS if name in probes), None):
        probe = probes[protocol]
        row |= {name: probe.get(name) for name in CLASSIFICATION}
        row |= {"accuracy_low": probe.get("low"), "accuracy_high": probe.get("high")}
        row |= {"protocol": protocol, "test_samples": probe.get("test_samples")}
    return row


def _card(card: Mapping[str, Any]) -> dict[str, Any]:
    scores = {f"{s['name']}@{s['layer']}": s["value"] for s in card.get("scores", [])}
    return {"status": card.get("status")} | scores


def _start(store: Store, name: str | None) -> Mapping[str, Any]:
    return read_json(store.path / "start" / name) if name else {}


def directions(runs: pd.DataFrame) -> dict[str, str]:
    """Which way is better, for each score that the frame has a column of."""
    columns = [str(column) for column in runs.columns if "@" in str(column)]
    if not columns:
        return {}
    from radial.metrics.registry import SCORES as REGISTRY

    names = {column: column.partition("@")[0] for column in columns}
    return {column: REGISTRY[name].better for column, name in names.items() if name in REGISTRY}
