"""Shared by the tests of studies: what of a run must not depend on how it came about."""

from __future__ import annotations

import json
from typing import Any

from radial.study.store import Store


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
