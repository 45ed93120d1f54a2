"""docs/FINDINGS.md says what the kept results say, and the studies are what it says they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import spearmanr

from radial.metrics.registry import SCORES
from radial.study.analysis.columns import final
from radial.study.plan import from_values, read_study

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "studies"))

import evidence  # noqa: E402
import frames  # noqa: E402
import rates  # noqa: E402
import which_epoch  # noqa: E402
from evidence import Evidence  # noqa: E402

STUDIES = {"tune": 30, "heads": 90, "scores": 100, "published": 27, "second": 90, "second64": 18,
           "arms": 216, "pool": 12, "long": 40, "vit": 16, "defaults": 9, "again": 54,
           "stopping": 27}  # fmt: skip
SHORTER = {"again": ["sample={runs: 6, seed: 6}"]}  # than planned: how far it came


def test_tables_and_figure_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "studies" / "findings.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_the_results_are_of_the_study(name: str) -> None:
    """Every planned run is there, once, and no other."""
    kept = pd.read_parquet(ROOT / "docs" / "findings" / name / "results.parquet")
    data, weights = (str(kept[column].dropna().unique()[0]) if kept[column].notna().any() else ""
                     for column in ("data", "weights"))  # fmt: skip
    changes = [f"data={data}", *([f"weights={weights}"] if weights else [])]
    changes += SHORTER.get(name, [])
    planned = [run.id for run in read_study(ROOT / "studies" / f"{name}.yaml", changes).runs()]
    assert len(planned) == STUDIES[name]
    runs = kept["run"].str.partition("@")[0]  # long has rows of its checkpoints, alike for all
    assert sorted(runs.unique()) == sorted(planned)
    assert kept["run"].is_unique
    assert runs.value_counts().nunique() == 1


def test_the_challenger_is_judged_on_all_it_was_read_on() -> None:
    """No run falls out because another score could not be computed of it."""
    read = {name: pd.read_parquet(frames.KEPT / "candidates" / f"{name}.parquet")
            for name in frames.READ}  # fmt: skip
    found = frames.challenged(*frames.READ)
    assert found.runs == sum(len(runs) for runs in read.values())
    assert {cell.data for cell in found.cells} == {frames.DATA[name] for name in frames.READ}
    for name, runs in read.items():  # the recipe that is view retrieval by itself
        alone = final(frames.kept(name)).set_index("run")[frames.BEST].loc[runs["run"]]
        assert runs["fixed: whitened log rank"].to_numpy() == pytest.approx(alone, rel=1e-4)


def test_the_heads_have_the_rates_that_were_found() -> None:
    """arms.yaml is what rates.py writes from the kept table, over the grids of rates.yaml."""
    table = pd.read_parquet(ROOT / "docs" / "findings" / "rates" / "results.parquet")
    heads = list(dict.fromkeys(table["head"]))
    plan = (ROOT / "studies" / "arms.yaml").read_text(encoding="utf-8")
    assert plan == rates.plan(rates.best(table), heads)
    changes = ["data=folder:cifar10-20k", f"heads=[{', '.join(heads)}]"]
    planned = [run.id for run in read_study(ROOT / "studies" / "rates.yaml", changes).runs()]
    assert sorted(table["run"]) == sorted(planned)


@pytest.mark.parametrize("strength", ["0.125", "0.25", "0.5", "1"])
def test_watermarked_pools_are_as_registered(strength: str) -> None:
    kept = pd.read_parquet(ROOT / "docs" / "findings" / f"pool-{strength}" / "results.parquet")
    changes = [f"data=folder:{strength}", "methods=[simclr]", "grid={base_lr: [0.12]}"]
    planned = [run.id for run in read_study(ROOT / "studies" / "pool.yaml", changes).runs()]
    assert sorted(kept["run"]) == sorted(planned)


def test_every_page_that_is_linked_is_there() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("[A-Z]*.md"))):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_nothing_is_left_to_fill_in() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("[A-Z]*.md"))):
        text = re.sub(r"(?<!`)`[^`\n]+`(?!`)", "", page.read_text(encoding="utf-8"))
        assert (
            re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|^[A-Z]{4,}$|@[A-Z]{3,}", text, flags=re.MULTILINE)
            == []
        )


def test_the_readme_is_short_and_counts_right() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| {len(SCORES)}, with intervals |" in text
    assert len(text.splitlines()) < 150


def pool(seed: int = 0) -> pd.DataFrame:
    """Three methods on two data sets, eight runs each: scores that know all, much and nothing."""
    random = np.random.default_rng(seed)
    rows = [
        {"data": data, "method": method, "run": f"{data}{method}{run}", "epoch": 1,
         "accuracy": (accuracy := random.uniform()), "all": 2 * accuracy,
         "much": accuracy + random.normal(0, 0.15), "nothing": random.normal()}
        for data in "CT" for method in "abc" for run in range(8)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "RESAMPLES", 500)
    monkeypatch.setattr(evidence, "PERMUTATIONS", 500)


@pytest.mark.usefixtures("quick")
def test_the_registered_statistics() -> None:
    """ρ as scipy's, averaged by Fisher's z; perfect and blind scores are told apart."""
    runs = pool()
    found = Evidence(runs, ["all", "much", "nothing"])
    table = found.table()
    rhos = [spearmanr(part["much"], part["accuracy"])[0]
            for _, part in runs.groupby(["data", "method"])]  # fmt: skip
    assert table.loc["much", "rho"] == pytest.approx(np.tanh(np.arctanh(rhos).mean()), abs=1e-12)
    assert (table["low"] <= table["rho"]).all()
    assert (table["rho"] <= table["high"] + 1e-12).all()
    assert table.loc["all", "regret"] == 0 < table.loc["nothing", "regret"]
    assert table.loc["all", "p_holm"] == pytest.approx(3 / 501)  # the least there is, times three
    assert table.loc["nothing", "p_holm"] > 0.05
    ahead = found.ahead("much")
    assert ahead.loc["nothing", "low"] > 0 > ahead.loc["all", "high"]
    wider = found.ahead("much", 99)
    assert (wider["low"] < ahead["low"]).all()
    assert (wider["high"] > ahead["high"]).all()
    assert found.runs == 48


@pytest.mark.usefixtures("quick")
def test_cells_that_count_otherwise() -> None:
    """Alike they are the registered mean; a cell without weight says nothing."""
    found = Evidence(pool(), ["all", "much", "nothing"]).only(["much", "nothing"])
    row, ones = found.table().loc["much"], np.ones(len(found.cells))
    told = found.counted("much", ones)
    for name in ("rho", "low", "high", "regret", "regret_low", "regret_high"):
        assert told[name] == pytest.approx(row[name], abs=1e-12)
    rhos = [spearmanr(cell.scores[:, 0], cell.accuracy)[0] for cell in found.cells]
    assert told["plain"] == pytest.approx(np.mean(rhos))
    first = np.array([cell.data == "C" for cell in found.cells], dtype=float)
    half = found.counted("much", first, apart=False)
    assert half["plain"] == pytest.approx(np.mean([r for r, w in zip(rhos, first) if w]))
    assert half["low"] <= half["rho"] <= half["high"]


@pytest.mark.usefixtures("quick")
def test_methods_are_what_is_resampled() -> None:
    """A score that is right for two methods and wrong for one has a wide interval."""
    runs = pool()
    one = runs.assign(mixed=np.where(runs["method"] == "c", -runs["all"], runs["all"]))
    table = Evidence(one, ["mixed"]).table()
    assert table.loc["mixed", "low"] < 0 < table.loc["mixed", "high"]
    assert table.loc["mixed", "least"] < -0.9


def test_runs_that_lack_a_budget_or_a_score_take_no_part() -> None:
    runs = pd.concat([pool(), pool().assign(epoch=3)], ignore_index=True)
    runs.loc[0, "all"] = np.nan
    found = Evidence(runs, ["all"])
    assert sorted({len(cell.accuracy) for cell in found.cells}) == [7, 8]
    assert len(found.cells) == 12


def test_the_largest_set_of_budgets_that_runs_share() -> None:
    """Three runs of a method ended after epoch 2, the others after 3: one cell, of five runs."""
    runs = pool()
    early = runs["run"].str[-1].isin(["0", "1", "2"])
    found = Evidence(runs.assign(epoch=np.where(early, 2, 3)), ["all"])
    assert {(cell.budget, len(cell.accuracy)) for cell in found.cells} == {("3", 5)}


@pytest.mark.usefixtures("quick")
def test_what_sees_labels_is_no_part_of_the_family() -> None:
    table = Evidence(pool(), ["all", "much", "nothing"], labelled=["all"]).table()
    assert np.isnan(table.loc["all", "p_holm"])
    assert table.loc["much", "p_holm"] == pytest.approx(2 / 501)


def test_points_lost_by_keeping_a_checkpoint() -> None:
    """Against the best of the run; a rule that has no figure for a checkpoint passes it over."""
    runs = [pd.DataFrame({"accuracy": [0.3, 0.5, 0.4], "rule": rule})
            for rule in ([1.0, 2.0, 3.0], [9.0, 9.0, 1.0], [1.0, 5.0, np.nan])]  # fmt: skip
    assert which_epoch.points_lost(runs, "rule").tolist() == pytest.approx([10, 20, 0])
    methods = pd.Series(["a", "a", "b"])
    mean, low, high = which_epoch.meant(which_epoch.points_lost(runs, "rule"), methods)
    assert mean == pytest.approx(7.5)  # of the methods' means, 15 and 0
    assert low == 0 < mean < high <= 20


def test_the_challenger_is_read_at_the_end_of_a_run() -> None:
    runs = frames.unchosen("long")[0]
    read = frames.with_challenger(runs, "long").dropna(subset=frames.CHALLENGER)
    assert set(read["epoch"]) == {frames.LATE}
    assert read["run"].is_unique


def test_adjusted_p_values() -> None:
    """Holm's own: sorted p times n, n − 1, …, never falling, at most 1."""
    assert evidence.holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert evidence.holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])


def test_the_best_rates_and_their_plan() -> None:
    """The smaller of equal rates; an edge is of the method's grid; each head once a seed."""
    reached = {("byol", "rbfn"): (0.3, 0.4, 0.4), ("byol", "default"): (0.2, 0.3, 0.4),
               ("moco", "rbfn"): (0.5, 0.4, 0.4), ("moco", "default"): (0.5, 0.4, 0.3)}  # fmt: skip
    table = pd.DataFrame(
        {"method": method, "head": head, "base_lr": rate, "validation": value}
        for (method, head), values in reached.items()
        for rate, value in zip((0.03, 0.12, 0.48), values, strict=True)
    )
    chosen = rates.best(table.sample(frac=1, random_state=0)).set_index(["method", "head"])
    assert chosen["base_lr"].to_dict() == {
        ("byol", "rbfn"): 0.12, ("byol", "default"): 0.48,
        ("moco", "rbfn"): 0.03, ("moco", "default"): 0.03,
    }  # fmt: skip
    assert chosen["highest"].to_dict()["byol", "default"]
    assert list(chosen.index[chosen["lowest"]]) == [("moco", "default"), ("moco", "rbfn")]
    runs = table.assign(run=[f"{i}" for i in range(len(table))])
    assert rates.merged(runs[3:], runs[:6]).equals(runs)  # rows kept before stay, once
    values = yaml.safe_load(rates.plan(chosen.reset_index(), ["default", "rbfn"]))
    values["constants"]["data"] = "digits"
    runs = from_values(values).runs()
    found = [(run.config.method, run.config.head, run.config.base_lr, run.config.seed)
             for run in runs]  # fmt: skip
    assert sorted(found) == sorted(
        (method, head, rate, seed)
        for (method, head), rate in chosen["base_lr"].items()
        for seed in (0, 1, 2)
    )
    assert {run.config.epochs for run in runs} == {10}
