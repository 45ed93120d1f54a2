"""Shared by the tests of studies: the published runs, and what must not depend on how a run came
about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from radial.study.store import Store

ROOT = Path(__file__).parents[2]
RESULTS = ROOT.parent / "shared" / "data" / "paper-results"


def exported(data: str, head: str) -> tuple[Path, Path]:
    """The published training and evaluation table of a dataset and head."""
    if not RESULTS.is_dir():
        pytest.skip(f"{RESULTS} is not there: run beside the published tables")
    stem = f"{RESULTS / data / head}/rbfn-ssl-projector-{head}"
    return Path(f"{stem}_{data}.csv"), Path(f"{stem}-eval_{data}.csv")


def published(data: str, *heads: str) -> pd.DataFrame:
    """The published runs of a dataset, by default of both heads."""
    from published_tables import read_pair

    tables = [read_pair(*exported(data, head)) for head in heads or ("default", "rbfn")]
    return pd.concat(tables, ignore_index=True)


def facts(store: Store) -> dict[str, Any]:
    """Of every run: losses, accuracy and scores; times and paths left out."""
    found = {}
    for run in store.runs():
        result, evaluation, card = (
            json.loads((store.run(run) / name).read_text())
            for name in ("result.json", "eval.json", "scores.json")
        )
        found[run] = {
            "loss": [result[name] for name in ("train_loss", "val_loss", "spread", "steps")],
            "verdict": result["verdict"],
            "accuracy": evaluation["probes"]["exact"]["accuracy"],
            "confusion": evaluation["probes"]["exact"]["confusion"],
            "knn": evaluation["knn"],
            "scores": {f"{s['name']}@{s['layer']}": s["value"] for s in card["scores"]},
        }
    return found
