"""The peak table against the published one, and paired heads against scipy's paired t-test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from study_cases import published

from radial.study.analysis.peaks import paired_heads, peak_table, t_interval

METRICS = ["f1", "accuracy", "precision", "recall"]

# The paper's table "peak backbone performance": F1, A, P, R of the default and of the RBFN head.
# One figure is corrected: the paper prints R 0.55 beside A 0.56 for MoCo with the RBFN head on
# OpenImagesV7-50, but in its result tables both are 0.555013.
PUBLISHED = {
    "imagenet-100": {
        "moco": (0.92, 0.92, 0.92, 0.92, 0.92, 0.92, 0.93, 0.92),
        "simclr": (0.88, 0.88, 0.89, 0.88, 0.92, 0.92, 0.93, 0.92),
        "byol": (0.88, 0.89, 0.90, 0.89, 0.92, 0.92, 0.93, 0.92),
        "swav": (0.88, 0.88, 0.89, 0.88, 0.89, 0.89, 0.90, 0.89),
        "simsiam": (0.92, 0.92, 0.93, 0.92, 0.92, 0.92, 0.93, 0.92),
        "average": (0.90, 0.90, 0.90, 0.90, 0.91, 0.92, 0.92, 0.92),
    },
    "open-images-v7-50": {
        "moco": (0.55, 0.58, 0.56, 0.58, 0.53, 0.56, 0.55, 0.56),
        "simclr": (0.52, 0.54, 0.54, 0.54, 0.51, 0.54, 0.54, 0.54),
        "byol": (0.49, 0.52, 0.55, 0.52, 0.53, 0.55, 0.55, 0.55),
        "swav": (0.47, 0.51, 0.48, 0.51, 0.44, 0.49, 0.46, 0.49),
        "simsiam": (0.55, 0.57, 0.56, 0.57, 0.52, 0.55, 0.55, 0.55),
        "average": (0.52, 0.55, 0.54, 0.55, 0.51, 0.54, 0.53, 0.54),
    },
}


def make(rows: list[dict[str, Any]]) -> pd.DataFrame:
    base = {"data": "digits", "method": "simclr", "head": "default", "seed": 0}
    return pd.DataFrame([base | {"run": f"r{i}"} | row for i, row in enumerate(rows)])


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_table(name: str) -> None:
    table = peak_table(published(name))
    expected = PUBLISHED[name]
    assert list(dict.fromkeys(table["method"])) == list(expected)
    wide = table.set_index(["method", "head"])[METRICS]
    for method, values in expected.items():
        found = [*wide.loc[(method, "default")], *wide.loc[(method, "rbfn-paper")]]
        assert np.round(found, 2) == pytest.approx(values, abs=1e-9), method
    assert table.set_index(["method", "head"]).loc[("moco", "rbfn-paper"), "runs"] == 72


def test_one_run_gives_all_four_metrics() -> None:
    table = peak_table(
        make([{"accuracy": 0.8, "f1": 0.5, "precision": 0.1, "recall": 0.2},
              {"accuracy": 0.7, "f1": 0.9, "precision": 0.9, "recall": 0.9}])
    )  # fmt: skip
    assert table.loc[0, ["run", "runs", "tied", *METRICS]].tolist() == [
        "r0", 2, 1, 0.5, 0.8, 0.1, 0.2,
    ]  # fmt: skip
    assert len(table) == 1  # one method: no average
    assert not table.loc[0, "accuracy_best"]  # nothing to be better than


def test_ties_and_bold() -> None:
    runs = make(
        [{"accuracy": 0.9049, "f1": 0.5}, {"accuracy": 0.9049, "f1": 0.6},
         {"head": "rbfn", "accuracy": 0.9001, "f1": 0.7}]
    )  # fmt: skip
    table = peak_table(runs).set_index("head")
    assert table.loc["default", "run"] == "r0"
    assert table.loc["default", "tied"] == 2
    assert table["accuracy_best"].tolist() == [False, False]  # 0.90 both
    assert table["f1_best"].tolist() == [False, True]
    assert peak_table(runs, decimals=3)["accuracy_best"].tolist() == [True, False]
    assert peak_table(runs, decimals=None)["accuracy_best"].tolist() == [True, False]


def test_average_over_common_methods_in_order() -> None:
    cells = {
        ("vicreg", "default"): 0.1, ("simsiam", "default"): 0.2, ("moco", "default"): 0.4,
        ("barlow_twins", "default"): 0.9, ("vicreg", "rbfn"): 0.3, ("simsiam", "rbfn"): 0.5,
        ("moco", "rbfn"): 0.7,
    }  # fmt: skip
    rows = [{"method": m, "head": h, "accuracy": value} for (m, h), value in cells.items()]
    table = peak_table(make(rows))
    methods = ["moco", "simsiam", "barlow_twins", "vicreg", "average"]
    assert list(dict.fromkeys(table["method"])) == methods
    average = table[table["method"] == "average"].set_index("head")["accuracy"]
    assert average.to_dict() == pytest.approx({"default": 0.7 / 3, "rbfn": 0.5})
    assert table["f1"].isna().all()


def test_the_last_checkpoint_counts() -> None:
    runs = make([{"run": "a@5", "epoch": 5, "accuracy": 0.9},
                 {"run": "a", "epoch": 10, "accuracy": 0.8},
                 {"run": "b", "epoch": 10, "accuracy": np.nan, "seed": 1}])  # fmt: skip
    table = peak_table(runs)
    assert table[["run", "runs", "accuracy"]].to_numpy().tolist() == [["a", 1, 0.8]]


def test_runs_of_other_lengths_are_runs() -> None:
    runs = make([{"epoch": 5, "accuracy": 0.9}, {"epoch": 10, "accuracy": 0.8}])
    table = peak_table(runs)
    assert table[["run", "runs", "accuracy"]].to_numpy().tolist() == [["r0", 2, 0.9]]


def test_two_equal_differences_decide_nothing() -> None:
    rows = [{"head": head, "seed": seed, "accuracy": 0.9 - (head == "rbfn") / 360,
             "test_samples": 360} for head in ("default", "rbfn") for seed in (0, 1)]  # fmt: skip
    found = paired_heads(make(rows)).iloc[-1]
    assert found["difference"] == pytest.approx(-1 / 360)
    assert found["low"] < -0.02
    assert found["high"] > 0.02


def test_paired_heads_equal_scipy() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(0.5, 0.1, (2, 3, 6))
    rows = [
        {"method": method, "head": head, "seed": seed, "accuracy": values[i, seed]}
        for head, values in (("default", a), ("rbfn", b))
        for i, method in enumerate(("simclr", "byol", "moco"))
        for seed in range(6)
    ]
    table = paired_heads(make(rows)).set_index("method")
    assert table.index.tolist() == ["moco", "simclr", "byol", "pooled"]
    for method, x, y in (("byol", a[1], b[1]), ("pooled", a.ravel(), b.ravel())):
        test = stats.ttest_rel(y, x)
        interval = test.confidence_interval(0.95)
        row = table.loc[method]
        assert row["pairs"] == len(x)
        assert row["difference"] == pytest.approx((y - x).mean())
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        assert (row["a_mean"], row["b_mean"]) == pytest.approx((x.mean(), y.mean()))


def test_pairs_share_all_but_the_head() -> None:
    rows = [
        {"base_lr": 0.1, "num_layers": 2, "accuracy": 0.5},
        {"base_lr": 0.1, "num_layers": 3, "accuracy": 0.7},
        {"base_lr": 0.2, "num_layers": 2, "accuracy": 0.1},  # no partner at that learning rate
        {"base_lr": 0.1, "num_layers": 4, "head": "rbfn", "accuracy": 0.9, "num_kernels": 8},
        {"base_lr": 0.1, "head": "rbfn", "accuracy": 0.2, "seed": 1},
    ]
    row = paired_heads(make(rows)).iloc[0]
    assert row[["pairs", "a_runs", "b_runs"]].tolist() == [1, 2, 1]
    assert row["difference"] == pytest.approx(0.3)
    assert np.isnan(row["low"])
    apart = [row | {"epochs": 1 + i} for i, row in enumerate(rows)]
    assert paired_heads(make(apart)).empty
    assert paired_heads(make(rows), b="linear").empty
    assert paired_heads(pd.DataFrame()).columns.tolist() == row.index.tolist()


def test_a_learning_rate_may_be_tuned_for_each_head() -> None:
    rows = [
        {"head": head, "seed": seed, "base_lr": lr, "accuracy": 0.5 + lr}
        for head, lr in (("default", 0.1), ("rbfn", 0.2))
        for seed in (0, 1)
    ]
    row = paired_heads(make(rows)).iloc[0]
    assert (row["pairs"], row["tuned"]) == (2, "base_lr 0.1 and 0.2")
    assert row["difference"] == pytest.approx(0.1)
    swept = [*rows, rows[0] | {"base_lr": 0.2, "accuracy": 0.1}]  # no longer one value a head
    row = paired_heads(make(swept)).iloc[0]
    assert (row["pairs"], row["tuned"]) == (1, "")
    assert row["difference"] == pytest.approx(0.6)


def test_t_interval() -> None:
    values = np.array([0.1, 0.3, 0.2, 0.6])
    expected = stats.t.interval(0.9, 3, values.mean(), stats.sem(values))
    assert t_interval(values, level=0.9) == pytest.approx(expected)
    assert np.isnan(t_interval(values[:1])).all()
