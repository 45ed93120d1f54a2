"""The whole analysis: every table of a full study, and notes where one cannot be."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from radial.study.analysis.analyse import Analysis, analyse

BETTER = {"rankme@projector": "higher", "alignment@projector": "lower", "dims@backbone": "none"}


def study(seeds: int = 2) -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = [
        {"run": f"{method}-{head}-{layers}-{seed}", "source": "", "data": "digits",
         "method": method, "head": head, "num_layers": layers, "seed": seed, "epoch": 5,
         "accuracy": 0.4 + 0.1 * layers + 0.01 * random.normal()}
        for method in ("simclr", "byol") for head in ("default", "rbfn") for layers in (2, 3, 4)
        for seed in range(seeds)
    ]  # fmt: skip
    runs = pd.DataFrame(rows)
    for metric in ("precision", "recall", "f1", "knn_1pct"):
        runs[metric] = runs["accuracy"] + 0.01
    runs["train_loss"] = 1 - runs["accuracy"] + 0.01 * random.normal(size=len(runs))
    runs["rankme@projector"] = runs["accuracy"] * 10
    runs["alignment@projector"] = random.random(len(runs))
    runs["dims@backbone"] = random.random(len(runs))
    return runs


def analysed(runs: pd.DataFrame, better: Any = BETTER) -> Analysis:
    return analyse(runs, better, resamples=50)


def test_a_full_study() -> None:
    pytest.importorskip("shap", exc_type=ImportError)
    found = analysed(study())
    assert found.notes == ()
    for name, table in found.frames().items():
        assert len(table), name
    assert found.heads[["a", "b"]].drop_duplicates().to_numpy().tolist() == [["default", "rbfn"]]
    assert set(found.correlations["score"]) == set(BETTER)
    assert set(found.judgement["score"]) == {
        "rankme@projector", "alignment@projector", "train_loss", "knn_1pct",
    }  # fmt: skip
    assert found.importance["feature"].tolist() == ["num_layers"]


@pytest.mark.parametrize(
    ("runs", "better", "note"),
    [
        (pd.DataFrame(), {}, "no complete runs in this study"),
        (study().drop(columns="accuracy"), BETTER, "no accuracy in this study"),
        (study().drop(columns=list(BETTER)), BETTER, "no scores in this study: no correlations"),
        (study(), {}, "no direction is declared for rankme@projector, alignment@projector"),
        (study()[:14], BETTER, "fewer than three runs of byol on digits: no correlation within"),
        (study(1), BETTER, "no configuration was run with two seeds: no seed floor"),
        (study()[:1], BETTER, "no runs with the RBFN head: heads are not compared"),
        (study().query("head == 'rbfn'"), BETTER, "no runs with the default head"),
        (study().query("num_layers == 2"), BETTER, "fewer than 8 runs with an RBFN head on digits"),
        (pd.concat([study(4).query("num_layers == 2")]), BETTER, "no setting of the RBFN heads"),
        (study().assign(**{"dims@backbone": 1.0}), BETTER, "constant on digits: dims@backbone"),
        (study().drop(columns="knn_1pct"), BETTER, "no accuracy of a kNN with 1 % of the labels"),
        (study().assign(accuracy=[np.nan] * 2 + [0.5] * 22), BETTER, "2 of 24 runs have no acc"),
        (study().assign(epochs=lambda r: r["head"].map(len)), BETTER, "no run of rbfn shares"),
    ],
)  # fmt: skip
def test_notes_say_what_is_missing(
    runs: pd.DataFrame, better: dict[str, str], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)  # not what is tested here, and slow
    found = analysed(runs, better)
    assert [text for text in found.notes if text.startswith(note)], found.notes
    expected = {name: list(table.columns) for name, table in analysed(study()).frames().items()}
    assert {name: list(table.columns) for name, table in found.frames().items()} == expected


def test_without_shap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)
    found = analysed(study())
    assert found.notes == ("SHAP needs shap and xgboost: pip install 'radial-ssl[study]'",)
    assert found.importance.empty
    assert len(found.judgement) == 4
