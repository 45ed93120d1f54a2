"""Which checkpoint each rule keeps, on curves whose answer is known."""

from __future__ import annotations

import pandas as pd
import pytest

from radial.study.analysis import stopping_summary, stopping_table

SCORE = "view_retrieval@backbone"


def curve(run: str, accuracy: list[float], values: list[float], name: str = SCORE) -> pd.DataFrame:
    last = len(values)
    return pd.DataFrame(
        [
            {
                "run": run if place == last else f"{run}@{place}", "epoch": place, "data": "d",
                "method": "simclr", "head": "mlp", "seed": 0, "accuracy": a, name: v,
            }
            for place, (a, v) in enumerate(zip(accuracy, values), 1)
        ]
    ).sample(frac=1, random_state=0)  # fmt: skip  # in no order


def test_rules_keep_what_they_say() -> None:
    falls = curve("a", [0.3, 0.5, 0.6, 0.5, 0.4, 0.7, 0.2], [1, 2, 3, 2.5, 2, 4, 1])
    rises = curve("b", [0.1, 0.2, 0.3], [1, 2, 3])
    few = curve("c", [0.1, 0.2], [1, 2])
    table = stopping_table(pd.concat([falls, rises, few]), patience=2).set_index("run")
    assert list(table.index) == ["a", "b"]
    a = table.loc["a"]
    assert (a["best"], a["best_epoch"]) == (0.7, 6)
    assert (a["kept"], a["kept_epoch"], a["last"]) == (0.7, 6, 0.2)
    assert (a["stopped"], a["stopped_epoch"], a["trained_epoch"]) == (0.6, 3, 5)
    assert a["stopped_regret"] == pytest.approx(0.1)
    assert a["saved"] == pytest.approx(2 / 7)
    assert table.loc["b", [f"{rule}_regret" for rule in ("last", "kept", "stopped")]].sum() == 0
    summary = stopping_summary(table).set_index("rule")
    assert summary.loc["last", "regret"] == pytest.approx(0.25)
    assert summary.loc["stopped", "saved"] == pytest.approx(1 / 7)
    half = 12.706 * 0.25 / 1  # t of one degree of freedom × 0.3536 / √2
    assert summary.loc["last", "high"] == pytest.approx(0.25 + half, rel=1e-3)


def test_lower_is_better_and_unknown_scores() -> None:
    runs = curve("a", [0.1, 0.9, 0.3], [3, 1, 2], "alignment@projector")
    assert stopping_table(runs, "alignment@projector")["kept_epoch"].tolist() == [2]
    with pytest.raises(ValueError, match="there are: alignment@projector"):
        stopping_table(runs, "rankme@backbone")
