"""What kind of comparison it is, what the findings say of it, and what is never compared."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

import radial
from radial.metrics.scores import Score
from radial.scoring.card import Card
from radial.scoring.leaderboard import (
    ARCHITECTURES,
    KINDS,
    METHODS,
    ONE_METHOD,
    ONE_RUN,
    SUPERVISED,
    confirmed,
    hints,
    kinds,
    leaderboard,
    standing,
    weak,
)
from radial.scoring.result import grouped

ROOT = Path(__file__).parents[2]
KEY = "view_retrieval@backbone"


def card(name: str, value: float = 0.5, key: str = KEY, **facts: object) -> Card:
    score, layer = key.split("@")
    one = Score(
        name=score, layer=layer, value=value, low=value - 0.01, high=value + 0.01, samples=100,
        better="higher", replicates=(value - 0.005, value, value + 0.005),
    )  # fmt: skip
    known = {"kind": "run", "backbone": "resnet9", "method": "moco", "head": "rbfn", "run": name}
    return Card(target=name, status="ok", reason="", scores=(one,), **(known | facts))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"run": "a"}, (ONE_RUN,)),
        ({}, (ONE_METHOD,)),
        ({"method": "byol"}, (METHODS,)),
        ({"method": None, "run": None}, (METHODS,)),
        ({"backbone": "vit"}, (ARCHITECTURES,)),
        ({"backbone": "vit", "method": "supervised", "supervised": True},
         (METHODS, ARCHITECTURES, SUPERVISED)),
    ],
)  # fmt: skip
def test_kinds_of_comparison(changes, found) -> None:
    first, second = card("a", 0.6), card("b", **changes)
    assert kinds([first, second]) == found
    board = leaderboard([first, second])
    supported = all(standing(KEY, kind) == "supported" for kind in found)
    supported = supported and second.method is not None
    assert board.confirmed is supported
    assert (": supported by the findings, " in board.comparison) is supported
    assert ("not supported by the findings" in board.comparison) is not supported


def test_what_a_comparison_rests_on_is_said() -> None:
    one = leaderboard([card("a", 0.6), card("b")]).comparison
    assert re.fullmatch(
        r"runs of one method: supported by the findings, ρ 0\.\d\d \(0\.\d\d to 0\.\d\d\) over "
        r"\d+ runs of 9 methods", one
    ), one  # fmt: skip
    along = leaderboard([card("a", 0.6), card("b", run="a")]).comparison
    assert re.search(r"τ 0\.\d\d .* over \d+ checkpoints of \d+ runs", along), along
    key = "kernel_retrieval@kernels"  # half of the registered runs have no kernels
    kernels = leaderboard([card("a", 0.6, key), card("b", 0.5, key)], by=key).comparison
    assert kernels.endswith("over 60 runs of 3 methods")


def test_the_kind_that_speaks_against_a_score_is_quoted(monkeypatch) -> None:
    """Supported across methods, not across architectures: the figures are of the latter."""
    poor = {"measure": "τ", "value": -0.25, "low": -0.5, "high": 0.125}
    against = {"runs": 9, "groups": ["a", "b", "c"], "scores": {KEY: poor}}
    told = {**confirmed(), ARCHITECTURES: against}
    monkeypatch.setattr("radial.scoring.leaderboard.confirmed", lambda: told)
    board = leaderboard([card("a", 0.6), card("b", method="byol", backbone="vit")])
    assert standing(KEY, METHODS) == "supported"
    assert not board.confirmed
    assert board.comparison.endswith("does not rank these: τ -0.25 (-0.50 to 0.12)")


def test_a_method_that_a_score_ranks_poorly(monkeypatch) -> None:
    """Supported over nine methods, weak for this one: a hint, for this one alone."""
    told = confirmed()[ONE_METHOD]
    entry = {**told["scores"][KEY], "weak": {"moco": 0.25}}
    facts = {**confirmed(), ONE_METHOD: {**told, "scores": {**told["scores"], KEY: entry}}}
    monkeypatch.setattr("radial.scoring.leaderboard.confirmed", lambda: facts)
    board = leaderboard([card("a", 0.6), card("b")])
    assert not board.confirmed
    assert board.comparison.endswith("but 0.25 for those of moco; take the order as a hint")
    assert leaderboard([card("a", 0.6, method="byol"), card("b", method="byol")]).confirmed
    assert leaderboard([card("a", 0.6), card("b", run="a")]).confirmed  # checkpoints of one run
    assert (weak(KEY, "moco"), weak(KEY, "byol"), weak(KEY, None)) == (0.25, None, None)
    assert hints(KEY, ["byol"]) == []
    (said,) = hints(KEY, ["byol", "moco"])
    assert "orders their runs of moco poorly (ρ 0.25)" in said
    (said,) = hints("rankme@projector", ["moco"])
    assert said.startswith("By the findings rankme@projector does not rank runs of one method (ρ ")


@pytest.fixture
def without_info_nce(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts as if the findings had not tested that score."""
    told = confirmed()[ONE_METHOD]
    left = {key: found for key, found in told["scores"].items() if key != "info_nce@backbone"}
    facts = {**dict.fromkeys(KINDS), ONE_METHOD: {**told, "scores": left}}
    monkeypatch.setattr("radial.scoring.leaderboard.confirmed", lambda: facts)


@pytest.mark.usefixtures("without_info_nce")
def test_only_what_a_score_was_tested_for_is_confirmed() -> None:
    poor = leaderboard([card(n, v, "rankme@projector") for n, v in (("a", 9.0), ("b", 5.0))])
    assert not poor.confirmed
    assert "by the findings rankme@projector does not rank these: ρ -0." in poor.comparison
    new = leaderboard([card(n, v, "info_nce@backbone") for n, v in (("a", 9.0), ("b", 5.0))],
                      by="info_nce@backbone")  # fmt: skip
    assert "not supported by the findings (of info_nce@backbone nothing is)" in new.comparison


def test_the_facts_are_those_of_the_results() -> None:
    """By pandas alone, from the kept runs: Fisher's mean of Spearman's ρ within cells."""
    kept = {name: pd.read_parquet(ROOT / "docs" / "findings" / name / "results.parquet")
            for name in ("second", "second64", "long", "vit", "again")}  # fmt: skip
    kept["long"] = kept["long"][kept["long"]["epoch"].isin([1, 3, 10, 20])]
    runs = pd.concat([table.assign(study=name) for name, table in kept.items()]).dropna(
        subset="accuracy"  # one diverged
    )
    cell = ["study", "method", "epoch"]
    runs = runs.groupby(cell).filter(lambda one: len(one) >= 4)
    cells = [one for _, one in runs.groupby(cell)]
    facts = confirmed()
    assert set(facts) == set(KINDS)
    told = facts[ONE_METHOD]
    assert told["runs"] == runs["run"].str.partition("@")[0].nunique()
    assert told["groups"] == sorted(runs["method"].unique())
    for key in (KEY, "rankme@projector"):
        rhos = [spearmanr(c[key], c["accuracy"])[0] for c in cells]
        most = np.array([1 - 6 / (len(c) ** 3 - len(c)) for c in cells])
        mean = float(np.tanh(np.arctanh(np.clip(rhos, -most, most)).mean()))
        assert told["scores"][key]["value"] == pytest.approx(mean, abs=0.001)
        of = pd.Series(np.clip(rhos, -most, most)).groupby([c["method"].iloc[0] for c in cells])
        poor = {m: rho for m, rho in of.mean().items() if rho < 0.5}
        low = told["scores"][key]["low"]
        assert told["scores"][key].get("weak", {}) == pytest.approx(
            poor if low > 0 else {}, abs=0.006
        )
    assert [kind for kind in KINDS if facts[kind]] == [ONE_RUN, ONE_METHOD, METHODS]


def test_the_challenger_has_figures_of_its_own_runs() -> None:
    """By pandas alone, of the runs whose weights were kept and of those that had it as a score."""
    read, key = ROOT / "docs" / "findings" / "candidates", "view_retrieval_recipes@backbone"
    tables = []
    for name in ("second", "second64", "vit", "long"):  # of `long` at its last epoch
        runs = pd.read_parquet(read / f"{name}.parquet").merge(
            pd.read_parquet(read.parent / name / "results.parquet")[["run", "method", "accuracy"]]
        )
        mean = runs[[f"{kind}: whitened log rank" for kind in ("fixed", "crop", "strong")]].mean(
            axis=1
        )
        tables.append(runs.assign(mean=mean))
    again = pd.read_parquet(read.parent / "again" / "results.parquet")
    tables.append(again.assign(mean=again[key]).dropna(subset="accuracy"))  # one diverged
    z = []
    for _, cell in (one for table in tables for one in table.groupby("method")):
        most = 1 - 6 / (len(cell) ** 3 - len(cell))
        z.append(np.arctanh(np.clip(spearmanr(cell["mean"], cell["accuracy"])[0], -most, most)))
    told = confirmed()[ONE_METHOD]["scores"][key]
    assert told["value"] == pytest.approx(np.tanh(np.mean(z)), abs=0.001)
    assert (told["runs"], told["groups"], standing(key)) == (161, 9, "supported")
    assert confirmed()[METHODS]["scores"][key]["runs"] == 54
    assert standing(key, ONE_RUN) == "untested"


def test_other_kinds_are_confirmed_once_results_are_there(monkeypatch) -> None:
    """A made-up study of six methods: a score that orders all pairs, and one that orders none."""
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    from confirmed import by_pairs

    random = np.random.default_rng(0)
    runs = pd.DataFrame({"accuracy": random.random(60), "epoch": 3, "backbone": "resnet9"})
    runs["method"] = np.repeat([f"m{i}" for i in range(6)], 10)
    runs["run"] = [f"r{i}" for i in range(60)]
    runs["rankme@backbone"], runs["lidar@backbone"] = runs["accuracy"] ** 2, random.random(60)
    better = {"rankme@backbone": "higher", "lidar@backbone": "higher"}
    found = by_pairs(runs, METHODS, better)
    assert found["scores"]["rankme@backbone"] == {"measure": "τ", "value": 1, "low": 1, "high": 1}
    other = found["scores"]["lidar@backbone"]
    assert other["low"] < 0 < other["high"]
    assert found["runs"] == 60
    assert by_pairs(runs, ARCHITECTURES, better) is None  # one backbone
    assert by_pairs(runs[runs["method"] < "m4"], METHODS, better) is None  # too few methods
    assert by_pairs(runs, ONE_RUN, better) is None  # one epoch a run
    assert by_pairs(runs, SUPERVISED, better) is None
    way = runs.assign(epoch=1, run=runs["run"] + "@1", accuracy=runs["accuracy"] / 2)
    way["rankme@backbone"] /= 4
    found = by_pairs(pd.concat([runs, way]), ONE_RUN, better)
    assert found["scores"]["rankme@backbone"]["value"] == 1
    sys.modules.pop("confirmed")


@pytest.mark.usefixtures("without_info_nce")
def test_scores_stand_by_what_the_findings_say() -> None:
    keys = ("sns_paper@kernels", "info_nce@backbone", KEY, "rankme@backbone")
    scores = tuple(card("x", key=key).scores[0] for key in keys)
    groups = grouped([replace(card("x"), scores=scores)])
    assert groups == {
        "supported": [KEY],
        "untested": ["info_nce@backbone"],
        "unsupported": ["rankme@backbone", "sns_paper@kernels"],
    }


def test_targets_without_the_score_are_told_so_and_last() -> None:
    lone = replace(card("c"), scores=card("c", 50.0, "rankme@backbone").scores)
    board = leaderboard([lone, card("a", 0.4), card("b", 0.6)])
    assert [place.name for place in board.places] == ["b", "a", "c"]
    assert board.places[2].why == f"it has no {KEY}"
    assert board.answer.startswith("best: b, ahead of a by 0.2")


def test_fitted_and_trained_kernels_are_never_compared(runs, folder) -> None:
    result = radial.score(
        [runs["live"], "resnet9-w0.0625@none"], f"folder:{folder}", by="kernel_retrieval",
        part="train", view_images=64, repeats=2, fit_head=True, cache=False,
        scores=("kernel_retrieval", "sns_width"),
    )  # fmt: skip
    fitted = result[1].score("kernel_retrieval@kernels")
    assert fitted.gallery.endswith("kernels fitted now")
    assert result.best is None
    assert "does not compare" in result.board.answer
    assert leaderboard(list(result), "sns_width").best is None


def test_features_that_no_kernels_fit_cost_a_note_not_the_table() -> None:
    pixels = torch.randint(256, (32, 3, 8, 8), dtype=torch.uint8)
    models = {"constant": lambda b: torch.ones(len(b), 8), "pixels": lambda b: b.flatten(1)}
    result = radial.score(models, pixels, fit_head=True, repeats=0, scores=("rankme",))
    assert result["constant"].status == "collapsed"
    assert any("no kernels were fitted" in note for note in result["constant"].warnings)
    assert result["pixels"].score("rankme@backbone") is not None
