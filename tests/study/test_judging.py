"""Judging scores: brute force, enumeration, scipy, and cases whose answer is known."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from radial.study.analysis.analyse import analyse
from radial.study.analysis.columns import of_different_views, with_clid
from radial.study.analysis.correlation import Groups, fisher_mean
from radial.study.analysis.judging import (
    compare_scores,
    expected_regret,
    holm,
    judge_scores,
    regret,
    within,
)
from radial.study.analysis.peaks import seed_floor

UP = {"s@x": "higher"}


def make(accuracy: Any, methods: Any = "simclr", seeds: Any = 0, **columns: Any) -> pd.DataFrame:
    """Runs that differ in their learning rate unless that is given."""
    accuracy = np.asarray(accuracy, dtype=float)
    n = len(accuracy)
    names = [f"r{i}" for i in range(n)]
    base = {"run": names, "data": "digits", "method": methods, "head": "default", "seed": seeds}
    base |= {"base_lr": np.arange(n), "accuracy": accuracy}
    return pd.DataFrame(base | {name.replace("__", "@"): v for name, v in columns.items()})


@pytest.fixture
def study() -> pd.DataFrame:
    """Three methods, 6 configurations × 2 seeds; s follows accuracy, noise does not."""
    random = np.random.default_rng(0)
    accuracy = random.random(36)
    return make(
        accuracy,
        np.repeat(["moco", "simclr", "byol"], 12),
        np.tile([0, 1], 18),
        base_lr=np.tile(np.repeat(np.arange(6), 2), 3),
        s__x=accuracy + 0.1 * random.normal(size=36),
        noise__x=random.normal(size=36),
        train_loss=1 - accuracy + random.normal(size=36),
        knn_1pct=accuracy + 0.05 * random.normal(size=36),
        steps=100,
    )


def test_within_equals_scipy_in_the_declared_direction(study: pd.DataFrame) -> None:
    table = within(study, {"s@x": "lower", "noise@x": "near 1"})
    assert table["method"].unique().tolist() == ["moco", "simclr", "byol"]
    assert table["score"].unique().tolist() == ["s@x", "noise@x", "train_loss", "knn_1pct"]
    for _, row in table.iterrows():
        part = study[study["method"] == row["method"]]
        x = part[row["score"]]
        x = -abs(x - 1) if row["score"] == "noise@x" else x
        sign = -1 if row["score"] in ("s@x", "train_loss") else 1
        assert row["n"] == 12
        rho, tau = stats.spearmanr(x, part["accuracy"]), stats.kendalltau(x, part["accuracy"])
        assert row["spearman"] == pytest.approx(sign * rho.statistic)
        assert row["kendall"] == pytest.approx(sign * tau.statistic)


def test_bootstrap_is_brute_force_by_cluster(study: pd.DataFrame) -> None:
    groups = Groups(study)
    x = groups.oriented("s@x", "higher")
    x[[3, 4, 20]] = np.nan
    counts = groups.resample(20, seed=1)
    found = groups.bootstrap(x, counts)
    for b in range(20):
        rhos, ns = [], []
        for method, rows in groups.rows.items():
            times = counts[method][b].astype(int)
            assert (times[::2] == times[1::2]).all()  # both seeds of a configuration
            assert times[::2].sum() == 6
            drawn = np.repeat(rows, times)
            drawn = drawn[np.isfinite(x[drawn])]
            ns.append(int(np.isfinite(x[rows]).sum()))
            rhos.append(stats.spearmanr(x[drawn], groups.accuracy[drawn]).statistic)
        assert found[b] == pytest.approx(fisher_mean(rhos, ns))


def test_judgement(study: pd.DataFrame) -> None:
    table = judge_scores(study, UP | {"noise@x": "higher"}, resamples=300, permutations=500)
    assert table["kind"].tolist() == ["score", "score", "baseline", "baseline"]
    good, noise, loss, knn = (row for _, row in table.iterrows())
    z = np.arctanh(within(study, UP).query("score == 's@x'")["spearman"])
    assert good["spearman"] == pytest.approx(np.tanh(z.mean()))
    assert (good["n"], good["methods"], good["partial_n"]) == (36, 3, 36)
    assert 0 < good["low"] < good["spearman"] < good["high"] <= 1
    pooled = stats.spearmanr(study["s@x"], study["accuracy"]).statistic
    assert good["pooled_spearman"] == pytest.approx(pooled)
    assert good["partial"] == pytest.approx(pooled, abs=0.1)
    assert good["p"] == pytest.approx(1 / 501)
    assert good["p_holm"] == pytest.approx(2 / 501)
    assert good["verdict"] == "ranks runs"
    assert noise["low"] < 0 < noise["high"]
    assert noise["p_holm"] == pytest.approx(max(noise["p"], 2 / 501))
    assert noise["verdict"] == "no evidence"
    assert np.isnan([loss["pooled_spearman"], loss["partial"], loss["p_holm"]]).all()
    assert knn["pooled_spearman"] > 0.9
    assert good["regret1"] == pytest.approx(regret(study, UP).query("score == 's@x'")
                                            ["regret1"].mean())  # fmt: skip
    pd.testing.assert_frame_equal(
        table, judge_scores(study, UP | {"noise@x": "higher"}, resamples=300, permutations=500)
    )
    backwards = judge_scores(study, {"s@x": "lower"}, resamples=300, permutations=500).iloc[0]
    assert backwards["spearman"] == pytest.approx(-good["spearman"])
    assert backwards["p"] == 1
    assert backwards["verdict"] == "ranks them backwards"


def test_simpsons_paradox() -> None:
    """Within each method the score falls with accuracy; between methods it rises."""
    base = np.repeat([0.2, 0.5, 0.8], 8)
    step = np.tile(np.linspace(0, 0.1, 8), 3)
    runs = make(base + step, np.repeat(["moco", "simclr", "byol"], 8), s__x=base - step)
    row = judge_scores(runs, UP, resamples=50, permutations=50).iloc[0]
    assert row["spearman"] == -1
    assert row["pooled_spearman"] > 0.7
    assert row["partial"] == pytest.approx(-1)
    assert row["simpson"]


def test_permutation_equals_enumeration() -> None:
    accuracy, score = [0.1, 0.2, 0.3, 0.4, 0.5], [1, 3, 2, 5, 4]
    observed = stats.spearmanr(accuracy, score).statistic
    orders = list(itertools.permutations(score))
    exact = np.mean([stats.spearmanr(accuracy, o).statistic >= observed - 1e-9 for o in orders])
    row = judge_scores(make(accuracy, s__x=score), UP, resamples=10, permutations=20_000).iloc[0]
    assert row["p"] == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


def test_repeated_seeds_are_no_new_evidence() -> None:
    accuracy, score = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([1.0, 3, 2, 5, 4])
    once = judge_scores(make(accuracy, s__x=score), UP, permutations=5000).iloc[0]
    runs = make(accuracy.repeat(4), seeds=np.tile(range(4), 5), s__x=score.repeat(4))
    runs["base_lr"] = np.repeat(range(5), 4)
    many = judge_scores(runs, UP, permutations=5000).iloc[0]
    assert many["p"] == pytest.approx(once["p"], abs=0.03)
    assert (many["low"], many["high"]) == pytest.approx((once["low"], once["high"]), abs=0.1)
    naive = judge_scores(runs.assign(base_lr=range(20)), UP, permutations=5000).iloc[0]
    assert naive["p"] < 0.2 * many["p"]


def test_false_alarms_are_rare() -> None:
    """Scores without any relation: one-sided p is uniform, intervals cover 0."""
    random = np.random.default_rng(0)
    names = [f"s{i}@x" for i in range(60)]
    columns = pd.DataFrame(random.normal(size=(45, 60)), columns=names)
    runs = make(random.random(45), np.repeat(["moco", "simclr", "byol"], 15)).join(columns)
    table = judge_scores(runs, dict.fromkeys(names, "higher"), resamples=200, permutations=200)
    assert stats.kstest(table["p"], "uniform").pvalue > 0.001
    assert ((table["low"] <= 0) & (table["high"] >= 0)).mean() > 0.85
    assert (table["p_holm"] > 0.05).all()


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, math.nan, 0.9])[::2] == [1.0, 1.0]
    assert math.isnan(holm([0.5, math.nan])[1])
    assert holm([]) == []


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_expected_regret_is_enumeration(k: int) -> None:
    random = np.random.default_rng(k)
    accuracy = random.random(6)
    for x in ([0, 0, 0, 0, 0, 0], [1, 2, 2, 2, 0, 0], [3, 3, 2, 1, 1, 1], [6, 5, 4, 3, 2, 1]):
        losses = []
        for order in itertools.permutations(range(6)):
            ranked = sorted(order, key=lambda i: -x[i])  # stable: ties in the order drawn
            losses.append(accuracy.max() - accuracy[ranked[:k]].max())
        assert expected_regret(np.array(x, float), accuracy, k) == pytest.approx(np.mean(losses))


def test_regret_frame() -> None:
    runs = make([0.5, 0.9, 0.7, 0.6, 0.4, 0.3], ["simclr"] * 5 + ["moco"],
                s__x=[1, 2, 3, np.nan, 0, 1], flat__x=7, train_loss=[5, 4, 3, 2, 1, 0],
                steps=[10, 10, 10, 20, 10, 10])  # fmt: skip
    table = regret(runs, UP | {"flat@x": "higher"}).set_index(["method", "score"])
    row = table.loc[("simclr", "s@x")]
    assert row[["n", "picked", "best", "tied"]].tolist() == [4, "r2", "r1", 1]
    assert (row["regret1"], row["regret3"]) == pytest.approx((0.2, 0.0))
    assert row["random1"] == pytest.approx(0.9 - np.mean([0.5, 0.9, 0.7, 0.4]))
    for name in ("flat@x", "random"):
        flat = table.loc[("simclr", name)]
        assert flat["picked"] == ""
        assert flat["tied"] == 5
        assert flat["regret1"] == pytest.approx(0.9 - 0.62)
        best = [max(three) for three in itertools.combinations([0.5, 0.9, 0.7, 0.6, 0.4], 3)]
        assert flat["regret3"] == pytest.approx(0.9 - np.mean(best))
    assert table.loc[("simclr", "train_loss"), "picked"] == "r4"
    assert table.loc[("simclr", "steps"), "picked"] == "r3"
    assert table.loc[("simclr", "steps"), "regret3"] == pytest.approx(
        np.mean([0.9 - max(0.6, *two) for two in itertools.combinations([0.5, 0.9, 0.7, 0.4], 2)])
    )
    assert np.isnan(table.loc[("moco", "s@x"), "regret1"])  # one run: nothing to choose
    assert "steps" not in regret(runs.assign(steps=10), UP)["score"].tolist()


def test_compare_scores(study: pd.DataFrame) -> None:
    runs = study.assign(**{"t@x": study["s@x"] * 2})
    better = {"s@x": "higher", "t@x": "higher", "noise@x": "higher"}
    table = compare_scores(runs, better, against=["s@x"], resamples=200).set_index("a")
    assert table.index.tolist() == ["t@x", "noise@x"]
    assert table.loc["t@x", ["difference", "low", "high"]].tolist() == [0, 0, 0]
    judged = judge_scores(runs, better, resamples=10, permutations=10).set_index("score")[
        "spearman"
    ]
    assert table.loc["noise@x", "difference"] == pytest.approx(judged["noise@x"] - judged["s@x"])
    assert table.loc["noise@x", "high"] < 0
    default = compare_scores(runs, better, resamples=50)
    assert set(default["b"]) == {"train_loss", "knn_1pct"}
    gaps = runs.assign(**{"t@x": runs["t@x"].where(runs.index % 4 > 0)})
    row = compare_scores(gaps, better, against=["s@x"], resamples=50).iloc[0]
    assert row[["n", "difference"]].tolist() == [27, 0]  # over the same runs
    with pytest.raises(ValueError, match="unknown score 'rank'; known: knn_1pct, noise@x"):
        compare_scores(runs, better, against=["rank"])


def test_seed_floor() -> None:
    random = np.random.default_rng(0)
    level = random.normal(0.5, 0.05, 400)
    accuracy = (level[:, None] + random.normal(0, 0.02, (400, 3))).ravel()
    runs = make(accuracy, seeds=np.tile(range(3), 400), base_lr=np.repeat(range(400), 3))
    row = seed_floor(runs).iloc[0]
    assert row[["configurations", "repeated", "seeds"]].tolist() == [400, 400, 3]
    assert row["between_seeds"] == pytest.approx(0.02, rel=0.1)
    assert row["between_configurations"] == pytest.approx(0.05, rel=0.1)
    assert row["ratio"] == pytest.approx(row["between_configurations"] / row["between_seeds"])
    anova = accuracy.reshape(400, 3)
    assert row["between_seeds"] == pytest.approx(math.sqrt(anova.var(axis=1, ddof=1).mean()))
    uneven = make([0.1, 0.3, 0.7], seeds=[0, 1, 0], base_lr=[1, 1, 2])
    row = seed_floor(uneven).iloc[0]
    assert row["between_seeds"] == pytest.approx(math.sqrt(0.02))
    assert row["between_configurations"] == pytest.approx(math.sqrt(0.125 - 0.02 * 0.75))
    assert np.isnan(seed_floor(make([0.1, 0.2]))["between_seeds"]).all()


def test_few_runs_and_constants() -> None:
    runs = make([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], ["moco"] * 2 + ["simclr"] * 4,
                s__x=[1, 2, 3, 4, 5, 6], flat__x=1.0, gone__x=np.nan)  # fmt: skip
    better = UP | {"flat@x": "higher", "gone@x": "higher", "absent@x": "lower"}
    table = judge_scores(runs, better, resamples=50, permutations=50).set_index("score")
    assert table.index.tolist() == ["s@x", "flat@x"]
    assert table.loc["s@x", ["n", "methods", "spearman"]].tolist() == [6, 1, 1]
    assert np.isnan(table.loc["s@x", "low"])  # four clusters
    assert np.isnan(table.loc["flat@x", ["spearman", "p", "p_holm"]].astype(float)).all()
    assert table.loc["s@x", "p_holm"] == table.loc["s@x", "p"]  # a family of one
    assert table.loc["flat@x", "verdict"] == "too few runs, or constant"
    assert within(runs, UP)["spearman"].isna().tolist() == [True, False]


def test_one_configuration_resamples_its_runs() -> None:
    runs = make(np.arange(8) / 10, seeds=np.arange(8), base_lr=0.1, s__x=np.arange(8.0))
    assert Groups(runs).clusters["simclr"].tolist() == list(range(8))
    checkpoints = pd.concat([runs.assign(epoch=1), runs.assign(epoch=2)], ignore_index=True)
    assert Groups(checkpoints).clusters["simclr"].tolist() == [*range(8), *range(8)]


@pytest.mark.parametrize("function", [within, judge_scores, regret, compare_scores])
def test_bad_input_and_nothing(function: Any, study: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="unknown direction 'up'; known: 'higher'"):
        function(study, {"s@x": "up"})
    nothing = function(study.drop(columns="accuracy"), UP)
    assert nothing.empty
    assert nothing.columns.tolist() == function(study, UP).columns.tolist()
    described = function(study, {"s@x": "none"})
    assert "s@x" not in described.astype(str).to_numpy()
    if function is judge_scores:
        with pytest.raises(ValueError, match="resamples must be an integer of at least 1, not 0"):
            judge_scores(study, UP, resamples=0)


def test_clid_is_standardised_over_the_pool_of_a_dataset() -> None:
    random = np.random.default_rng(0)
    runs = pd.DataFrame({
        "data": ["a"] * 6 + ["b"] * 5,
        "cluster_learnability@backbone": random.normal(size=11),
        "two_nn@backbone": 20 + random.normal(size=11),
        "cluster_learnability@projector": 1.0,
    })  # fmt: skip
    runs.loc[2, "two_nn@backbone"] = np.nan
    frame, better = with_clid(runs, {"two_nn@backbone": "lower"})
    assert better == {"two_nn@backbone": "lower", "clid@backbone": "higher"}
    assert "clid@backbone" not in runs
    for data, rows in (("a", [0, 1, 3, 4, 5]), ("b", [6, 7, 8, 9, 10])):
        parts = runs.loc[rows, ["cluster_learnability@backbone", "two_nn@backbone"]].to_numpy()
        exact = ((parts - parts.mean(0)) / parts.std(0)).sum(1)
        assert frame.loc[rows, "clid@backbone"].to_numpy() == pytest.approx(exact), data
    assert np.isnan(frame.loc[2, "clid@backbone"])
    constant = runs.assign(**{"two_nn@backbone": 3.0})
    assert with_clid(constant, {})[0]["clid@backbone"].isna().all()


def test_scores_of_different_views_are_not_judged() -> None:
    random = np.random.default_rng(0)
    runs = make(random.random(8), **{
        name: random.random(8) for name in ("view_retrieval@backbone", "lidar@backbone",
                                            "view_retrieval_recipes@backbone", "rankme@x")
    })  # fmt: skip
    scores = [name for name in runs.columns if "@" in name]
    seen = scores[:3]
    assert of_different_views(runs, scores) == []
    same = runs.assign(gallery="512 images × 4 views, fixed: 32 px")
    assert of_different_views(same, scores) == []
    other = same.assign(gallery=["512 images × 4 views, fixed: 32 px"] * 4 + ["crop"] * 4)
    assert of_different_views(other, scores) == seen
    own = same.assign(gallery=[f"512 images × 16 views, own: {i % 2}" for i in range(8)])
    assert of_different_views(own, scores) == seen[:1]  # LiDAR's paper compares runs so
    crop = same.assign(
        gallery=[f"512 images × 4 views, {('crop', 'own')[i % 2]}" for i in range(8)]
    )
    assert of_different_views(crop, scores) == seen[:2]  # recipes are the same, whatever the views
    found = analyse(other, dict.fromkeys(scores, "higher"), resamples=10)
    assert set(found.judgement["score"]) == {"rankme@x"}
    assert any("different views, which do not compare" in note for note in found.notes)
