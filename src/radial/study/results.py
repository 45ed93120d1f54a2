"""The table of results: a row a complete run, from a study's directory or from a file.

`radial study report --tables DIR` writes it as runs.csv and runs.parquet; a file of that layout,
from whatever made it, is read by :func:`read_runs`, `radial study report` and `radial study audit`:

========================================  ======================================================
``run``, ``data``, ``method``, ``head``   needed: a name of its own, and what was trained on what
other fields of ``RunConfig``             settings; those of RBF layers where a head has them
``train_loss``, ``val_loss``              at the end of training
``constant_loss``                         that of a constant output; else from method and settings
``spread``                                of the embeddings, 1 when isotropic
``verdict``, ``reason``                   how training ended; ``imported`` where that is not known
``epoch``, ``steps``, ``seconds``         trained; checkpoints on the way are runs ``RUN@EPOCH``
``accuracy``, ``precision``,              of a classifier on frozen features, 0 to 1, with
``recall``, ``f1``                        ``accuracy_low``, ``accuracy_high``, ``test_samples``
``start_accuracy`` and so on              the same, of the backbone before the first step
``knn``, ``knn_1pct``                     accuracy of a kNN with all labels and with 1 %
``logistic_1pct``, ``logistic_10pct``     of a logistic regression with 1 % and 10 % of the labels
``NAME@LAYER``                            a score, such as ``rankme@backbone``
``gallery``                               of scores of views: how many, and how they were drawn
``source``, ``index``                     file and row that a run comes from, else empty and 0, 1, …
========================================  ======================================================
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from radial.checks import as_kind, one_line, printable
from radial.documents import read_yaml
from radial.study.plan import KINDS, MACHINE
from radial.study.store import CHECKPOINTS, Store, Tell, left_out, made_as, read_json
from radial.training.config import RunConfig
from radial.training.rundir import CONFIG, EVALUATION, RESULT, SCORES

SUFFIXES = (".parquet", ".csv")
# Columns that hold nothing but numbers, beside those of CLASSIFICATION and scores.
COUNTS = (
    "index", "epoch", "steps", "test_samples", "batch_size", "num_kernels", "prototypes",
    "output_dim", "epochs", "seed",
)  # fmt: skip
NUMBERS = (
    *COUNTS, "seconds", "train_loss", "val_loss", "constant_loss", "spread", "accuracy_low",
    "accuracy_high", "knn", "knn_1pct", "logistic_1pct", "logistic_10pct", "start_accuracy",
    "base_lr", "temperature",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NEEDED = ("run", "data", "method", "head")
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


def read_runs(
    source: Path | str, *, all_runs: bool = False, tell: Tell | None = None
) -> pd.DataFrame:
    """The complete runs of a study, in the order of its plan, or those of a table of results.

    Args:
        source: a study's directory, or a .parquet or .csv file of the layout above.
        all_runs: also those of earlier plans that the directory holds, after the others.
        tell: called with a line for what is left out.

    Raises:
        ValueError: if there is no study or table, or no complete run in it.
    """
    path = Path(source)
    if path.suffix in SUFFIXES and not path.is_dir():
        return read_table(path)
    store, tell = Store(path), tell or (lambda line: None)
    study = store.study()
    places, steps = {run.id: run.index for run in study.runs()}, store.steps(study)
    others = store.unplanned(places)
    if others and not all_runs:
        tell(left_out(others))
    rows = []
    for run in [*places, *(others if all_runs else ())]:
        found = {name: store.read(run, name, tell) for name in steps}
        if any(values is None for values in found.values()):
            continue
        if old := [name for name, values in found.items() if not made_as(values, steps[name])]:
            tell(f"{store.run(run) / old[0]} was made with other settings: not done")
            continue
        try:
            row = _row(store, run, places.get(run, len(places)), found)
            kept = (found.get(CHECKPOINTS) or {}).get("rows", [])
            rows += [row, *(_intermediate(row, one) for one in kept)]
        except (OSError, TypeError, ValueError, KeyError, AttributeError) as error:
            tell(f"{store.run(run)} cannot be read and counts as not done: {one_line(error)}")
    if not rows:
        raise ValueError(f"{source} has no complete run yet")
    return pd.DataFrame(rows)


def read_table(path: Path | str) -> pd.DataFrame:
    """A table of results from a file; what may be absent is filled in.

    Raises:
        ValueError: if it cannot be read, lacks a column that is needed, names a run twice or holds
            a text for a number.
    """
    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            csv = path.suffix == ".csv"
            table = pd.read_csv(path, index_col=False) if csv else pd.read_parquet(path)
    except (OSError, ValueError, OverflowError, pd.errors.ParserWarning) as error:
        why = one_line(error)
        raise ValueError(f"{path} cannot be read as a table of results: {why}") from error
    if missing := [name for name in NEEDED if name not in table]:
        raise ValueError(f"{path} has no column {', '.join(missing)}: see radial.study.results")
    if table.empty:
        raise ValueError(f"{path} has no runs")
    for name in NEEDED:
        if table[name].isna().any():
            raise ValueError(f"{path}: row {table[name].isna().idxmax() + 1} has no {name}")
    table["run"] = table["run"].astype(str)
    if twice := sorted(table["run"][table["run"].duplicated()]):
        raise ValueError(f"{path} has more than one run {twice[0]}")
    table = table.reset_index(drop=True).rename(columns=lambda name: printable(str(name)))
    scores = [name for name in table.columns if "@" in name]
    for name in table.columns.intersection([*NUMBERS, *CLASSIFICATION, *scores]):
        try:
            numbers = pd.to_numeric(table[name])
            table[name] = numbers if name in COUNTS else numbers.astype(float)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {name} is not a number everywhere: {error}") from error
        if name in CLASSIFICATION and not table[name].dropna().between(0, 1).all():
            raise ValueError(f"{path}: {name} must be between 0 and 1")
    usual: dict[str, Any] = {"source": path.name, "index": range(len(table)), "verdict": "imported"}
    usual |= {"reason": None, "accuracy": math.nan, "train_loss": math.nan}
    absent = {name: value for name, value in usual.items() if name not in table}
    table = table.copy().assign(**absent)  # copied into few blocks: pandas warns of many
    for name in _texts(table):  # which are shown on terminals
        table[name] = table[name].map(lambda v: printable(v) if isinstance(v, str) else v)
    texts = table[["source", "verdict", "reason"]].astype(object)  # a CSV's may be all empty
    return table.assign(**texts).fillna({"source": ""})


def guarded(frame: pd.DataFrame) -> pd.DataFrame:
    """For a CSV file: a text that a spreadsheet would run as a formula begins with an apostrophe.

    >>> guarded(pd.DataFrame({"run": ["=1+1", "a"], "loss": [-1.0, 2.0]}))["run"].tolist()
    ["'=1+1", 'a']
    """

    def guard(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and cell[:1] in FORMULA else cell

    cells = {name: frame[name].map(guard) for name in _texts(frame)}
    return frame.assign(**cells).rename(columns=guard)


def _texts(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]


def _row(store: Store, run: str, index: int, found: Mapping[str, Any]) -> dict[str, Any]:
    directory = store.run(run)
    settings = read_yaml(directory / CONFIG)
    settings = {k: as_kind(k, v, KINDS[k]) for k, v in settings.items() if k in KINDS}
    names = [f.name for f in fields(RunConfig) if f.name not in (*MACHINE, "precision", "knn")]
    of_rbfn = () if str(settings.get("head")).startswith("rbfn") else ONLY_RBFN
    row: dict[str, Any] = {
        "run": run,
        "source": "",
        "index": index,
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
    few = {one["share"]: one["accuracy"] for one in evaluation.get("logistic_few", [])}
    row |= {"logistic_1pct": few.get(0.01), "logistic_10pct": few.get(0.1)}
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
    gallery = (card.get("data") or {}).get("gallery")
    return {"status": card.get("status"), "gallery": gallery} | scores


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


def overview(runs: pd.DataFrame) -> Table:
    """For each method and head: how its runs ended, and how accurate they are."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("method", "head", "runs", "verdict", "loss", "of a constant", "accuracy"):
        shown.add_column(name, justify="left" if name in ("method", "head", "verdict") else "right")
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
