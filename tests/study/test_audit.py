"""The audit finds what is dead, on the published tables and on others, and leaves the rest."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import rankdata
from study_cases import exported, published

from radial.methods import METHODS
from radial.study.audit import RULES, audit, gaps, print_audit
from radial.verdicts import constant_loss

DATASETS = {"imagenet-100": "ImageNet100", "open-images-v7-50": "OpenImagesV7-50"}
FUNCTIONS = ("gaussian", "multiquadric", "inverse_multiquadric", "tps")
SIZES = {"batch_size": 512, "queue_size": 1024, "prototypes": 300, "output_dim": 64}
LIVE = {"simclr": 5.1, "moco": 4.0, "swav": 3.2, "byol": -0.93, "simsiam": -0.9,
        "barlow_twins": 20.0, "vicreg": 18.0, "dino": 3.2, "nnclr": 3.0,
        "supcon": 5.1}  # fmt: skip


def study(method: str = "swav", *, seed: int = 0, heads: int = 24, **changes: Any) -> pd.DataFrame:
    """A healthy study: two default-head runs and RBFN runs over a grid, none like another."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(heads + 2):
        default = number < 2
        grid = {
            "radial_function": FUNCTIONS[number % 4],
            "num_kernels": 64 * 2 ** (number // 4 % 3),
            "normalize": number // 12 % 2 == 0,
        }
        rows.append(
            {
                "run": f"{method}{number}", "data": "birds", "method": method,
                "head": "default" if default else "rbfn", "backbone": "resnet18",
                "weights": None, "seed": number % 3, "epochs": 50, "epoch": 50,
                "base_lr": 0.1, "num_layers": 2 + number % 2,
                "temperature": 0.2 if method in ("simclr", "moco", "swav") else None,
                **SIZES, **(dict.fromkeys(grid) if default else grid),
                "train_loss": LIVE[method] * (1 + 0.05 * random.uniform(-1, 1)),
                "accuracy": random.uniform(0.6, 0.8), "verdict": "ok",
            }
        )  # fmt: skip
    return pd.DataFrame(rows).assign(**changes)


def test_every_method_whose_constant_loss_a_table_tells() -> None:
    assert set(LIVE) == set(METHODS) - {"supervised"}  # a table does not say how many classes


def constant(method: str) -> float:
    return constant_loss(method, **SIZES)


@pytest.mark.parametrize("data", DATASETS)
def test_published_runs_by_fixed_thresholds(data: str) -> None:
    """As many as counted from the raw table, by method; and these are the known numbers."""
    known = {
        "imagenet-100": {"byol": 24, "moco": 72, "simclr": 49, "simsiam": 24, "swav": 11},
        "open-images-v7-50": {"byol": 24, "moco": 3, "simclr": 50, "simsiam": 24, "swav": 11},
    }[data]
    train, _ = exported(data, "rbfn")
    counted: Counter[str] = Counter()
    for row in csv.DictReader(train.read_text().splitlines()):
        loss = float(row["train_loss"].lstrip("'"))
        counted[row["architecture"]] += {
            "simclr": loss >= math.log(4095) - 1e-3,
            "swav": loss >= math.log(2048) - 0.01,
            "byol": loss <= -0.9995,
            "simsiam": loss <= -0.9995,
            "moco": loss >= math.log(4097) - 0.03,
        }[row["architecture"]]
    found = audit(published(data, "rbfn")).counts
    assert dict(counted) == known
    assert dict(zip(found["method"], found["no_signal"])) == known


def test_published_runs_by_the_gap_to_the_default_head() -> None:
    """361 of the 432 of two datasets; every MoCo run, no default head."""
    runs = pd.concat([published(data) for data in DATASETS])
    found = audit(runs)
    by_head = found.counts.groupby("head")[["runs", "no_learning", "flagged"]].sum()
    assert by_head.loc["rbfn-paper"].tolist() == [432, 361, 361]
    assert by_head.loc["default"].tolist() == [18, 0, 0]
    moco = found.counts.query("method == 'moco' and head == 'rbfn-paper'")
    assert moco["no_learning"].tolist() == [72, 72]
    gaps_of_live = found.flags.query("method == 'simclr' and not no_learning")["gap_closed"]
    assert gaps_of_live.min() > 0.4
    assert found.sentences[0] == "361 of 450 runs show no sign of having learned"
    assert found.correlations.empty


@pytest.mark.parametrize("data", DATASETS)
def test_published_gaussian_runs_have_one_accuracy(data: str) -> None:
    runs = published(data)
    found = audit(runs)
    counts = {"moco": 18, "simclr": 18, "byol": 6, "simsiam": 6, "swav": 6}
    for method, count in counts.items():
        groups = found.identical[found.identical["method"] == method]
        whole = groups[groups["all_of"].str.contains(rf"radial_function gaussian \({count}\)")]
        assert len(whole) == 1
        gaussian = runs.query("method == @method and radial_function == 'gaussian'")
        assert set(gaussian["run"]) <= set(whole["members"].iloc[0])
        assert {"num_kernels", "normalize"} <= set(whole["differ"].iloc[0].split(", "))
    texts = [text for text in found.sentences if "have one accuracy" in text]
    assert sum("radial_function gaussian" in text for text in texts) == 5
    name = DATASETS[data]
    assert any(
        text.startswith(
            f"{name} byol: all 6 runs of radial_function gaussian have one accuracy, 0."
        )
        and text.endswith(", over num_kernels, normalize")
        for text in texts
    )


@pytest.mark.parametrize("data", DATASETS)
def test_published_groups_against_brute_force(data: str) -> None:
    """All sets of three runs or more with the same text of the accuracy in the CSV."""
    train, tested = exported(data, "rbfn")
    method = {r["Name"]: r["architecture"] for r in csv.DictReader(train.read_text().splitlines())}
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for row in csv.DictReader(tested.read_text().splitlines()):
        sizes[method[row["Name"]], f"{float(row['test_MulticlassAccuracy']):.6f}"] += 1
    found = audit(published(data, "rbfn")).identical
    texts = (f"{accuracy:.6f}" for accuracy in found["accuracy"])
    groups = dict(zip(zip(found["method"], texts), found["runs"]))
    assert groups == {key: size for key, size in sizes.items() if size >= 3}


@pytest.mark.parametrize("method", LIVE)
@pytest.mark.parametrize("images", [math.nan, 360.0, 10000.0])
def test_a_healthy_study_is_not_flagged(method: str, images: float) -> None:
    """Also where accuracies are multiples of 1/360, so that some agree by accident."""
    for seed in range(3):
        runs = study(method, seed=seed, test_samples=images)
        if not math.isnan(images):
            random = np.random.default_rng(seed)
            runs["accuracy"] = 0.95 + random.integers(-6, 7, len(runs)) / images
            for name in ("precision", "recall", "f1"):
                runs[name] = runs["accuracy"] - random.uniform(0, 0.01, len(runs))
            runs["start_accuracy"] = 0.7
        found = audit(runs)
        assert not found.flags[list(RULES)].to_numpy().any(), found.flags[["flags", "reasons"]]
        assert found.identical.empty
        assert found.sentences == ("none of 26 runs is flagged as having learned nothing",)


@pytest.mark.parametrize("method", LIVE)
def test_dead_runs_of_an_unseen_study_are_found(method: str) -> None:
    """One radial function dies: loss of a constant output, the accuracy of the backbone."""
    runs = study(method, data="trees", start_accuracy=0.41, test_samples=5000.0)
    dead = runs["radial_function"].eq("tps") & runs["head"].eq("rbfn")
    runs.loc[dead, ["train_loss", "accuracy"]] = [constant(method), 0.41]
    found = audit(runs)
    for rule in ("no_signal", "no_learning", "identical", "unmoved", "not_better"):
        assert found.flags[rule].tolist() == dead.tolist(), rule
    counts = found.counts.set_index("head")
    assert counts.loc["rbfn", ["runs", *RULES, "flagged"]].tolist() == [24, *[6] * 5, 6]
    assert counts.loc["default", "flagged"] == 0
    (group,) = found.identical.itertuples()
    assert group.all_of == "radial_function tps (6)"
    assert set(group.members) == set(runs["run"][dead])
    assert found.sentences[0] == "6 of 26 runs show no sign of having learned"
    assert found.sentences[1].startswith(
        f"trees {method}: all 6 runs of radial_function tps have one accuracy, 0.410000, over "
    )
    reasons = found.flags.loc[dead, "reasons"]
    assert reasons.str.contains("a constant output's is").all()
    assert (found.flags.loc[~dead, "reasons"] == "").all()


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(LIVE)),
    st.sets(st.integers(2, 25), max_size=24),
    st.randoms(use_true_random=False),
)
def test_exactly_the_dead_whatever_the_order_and_the_names(method, dead, random) -> None:
    runs = study(method)
    runs.loc[sorted(dead), "train_loss"] = constant(method)
    before = audit(runs).flags.set_index("run")
    assert set(before.index[before["no_signal"]]) == {f"{method}{row}" for row in dead}
    assert (before["no_learning"] == before["no_signal"]).all()
    order = list(range(len(runs)))
    random.shuffle(order)
    shuffled = runs.iloc[order].rename(index=lambda row: row + 100)
    shuffled["run"] = "x" + shuffled["run"]
    after = audit(shuffled).flags
    assert after["run"].tolist() == shuffled["run"].tolist()  # in the order of the runs
    after = after.assign(run=after["run"].str[1:]).set_index("run").loc[before.index]
    pd.testing.assert_frame_equal(after, before)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=3, max_size=26), st.integers(0, 99))
def test_groups_against_brute_force(numbers: list[int], seed: int) -> None:
    """Fine accuracies with ties put in: groups are the sets of at least three equal ones."""
    runs = study("byol", heads=len(numbers) - 2)
    random = np.random.default_rng(seed)
    runs["accuracy"] = [0.3 + n / 1000 + 1e-5 * (n % 7) for n in numbers]
    runs["accuracy"] += random.uniform(-1e-7, 1e-7, len(runs))  # the same to six digits
    runs["base_lr"] = random.uniform(0.1, 1.0, len(runs))  # no two runs alike
    runs = pd.concat([runs, study("byol", seed=1).assign(data="birds", method="moco")])
    expected = sorted(count for count in Counter(numbers).values() if count >= 3)
    found = audit(runs).identical.query("method == 'byol'")
    assert sorted(found["runs"]) == expected


def test_another_seed_is_no_other_setting() -> None:
    runs = study("simsiam", heads=10)
    runs.loc[2:4, "accuracy"] = 0.5
    same = ["radial_function", "num_kernels", "normalize", "num_layers"]
    runs.loc[2:4, same] = runs.loc[2, same].to_list()
    runs.loc[2:4, "seed"] = [0, 1, 2]
    assert audit(runs).identical.empty
    runs.loc[4, "num_kernels"] = 999
    (group,) = audit(runs).identical.itertuples()
    assert (group.runs, group.differ) == (3, "num_kernels")
    assert group.common == "head rbfn, num_layers 2, radial_function inverse_multiquadric"


def test_same_predictions_or_chance() -> None:
    """On 200 test images three equal accuracies are no wonder; three equal F1 are."""
    runs = study("byol", test_samples=200.0)
    runs["accuracy"] = 0.7 + np.arange(len(runs)) % 8 / 200
    assert audit(runs).identical.empty
    random = np.random.default_rng(0)
    for name in ("precision", "recall", "f1"):
        runs[name] = random.uniform(0.6, 0.7, len(runs))
    assert audit(runs).identical.empty
    runs.loc[[2, 10, 18], ["precision", "recall", "f1"]] = [0.65, 0.66, 0.67]
    assert audit(runs).identical["members"].tolist() == [("byol2", "byol10", "byol18")]
    runs.loc[[2, 10, 18], "accuracy"] = 0.985  # three wrong images
    assert audit(runs).identical.empty
    runs["accuracy"] = 1.0
    assert audit(runs).identical.empty


def test_verdict_in_common() -> None:
    runs = study("vicreg")
    runs.loc[[2, 7, 9, 12], "accuracy"] = 0.33
    runs.loc[[2, 7, 9, 12], "verdict"] = "dead head"
    assert audit(runs).identical["common"].tolist() == ["head rbfn, verdict dead head"]


def test_gap_is_measured_against_runs_alike() -> None:
    """Depth first; never another temperature, batch or budget; never a dead default head."""
    runs = study("simclr", heads=4)
    runs["train_loss"] = [5.0, 4.0, 6.0, 6.0, 6.0, 6.0]
    c = math.log(1023)
    default, closed = gaps(runs)
    assert default.tolist() == [5.0, 4.0, 5.0, 4.0, 5.0, 4.0]  # depth 2, 3, 2, 3, …
    assert closed.tolist() == pytest.approx([1, 1] + [(c - 6) / (c - 5), (c - 6) / (c - 4)] * 2)
    assert gaps(runs.assign(num_layers=[2, 3, 9, 9, 9, 9]))[0].tolist()[2:] == [4.5] * 4
    for name, value in (("temperature", 0.1), ("batch_size", 256), ("epoch", 10)):
        other = runs.assign(**{name: runs[name].where(runs["head"] == "default", value)})
        assert gaps(other)[1].isna().tolist() == [False] * 2 + [True] * 4, name
    runs.loc[0, "train_loss"] = c
    assert gaps(runs)[0].tolist()[2:] == [4.0] * 4
    runs.loc[1, "train_loss"] = c + 1
    found = audit(runs)
    assert found.flags["gap_closed"].isna().all()
    assert found.flags["no_signal"].tolist() == [True, True] + [False] * 4
    assert found.sentences[-1] == (
        "not compared, no live default-head run like them: 6 runs of birds simclr"
    )


def test_the_trivial_solution_is_below() -> None:
    """BYOL: a constant output has the smallest loss; a run that has hardly begun is not dead."""
    runs = study("byol", heads=4)
    runs["train_loss"] = [-0.9, -0.9, -0.999, -0.9999999, -0.1, -0.95]
    found = audit(runs).flags
    assert found["gap_closed"].tolist() == pytest.approx([1, 1, 0.01, 1e-6, 9, 0.5])
    assert found["no_signal"].tolist() == [False, False, False, True, False, False]
    assert found["no_learning"].tolist() == [False, False, True, True, False, False]
    assert "distance from a constant output's loss is 1.0 % of" in found["reasons"][2]


def test_unmoved_and_not_better() -> None:
    runs = study("barlow_twins", heads=3, start_accuracy=0.5, test_samples=100.0)
    runs["accuracy"] = [0.504, 0.496, 0.49, 0.51, 0.7]
    found = audit(runs)
    assert found.flags["unmoved"].tolist() == [True, True, False, False, False]
    assert found.flags["not_better"].tolist() == [False, True, True, False, False]
    assert found.counts["flagged"].tolist() == [2, 0]  # not better is no sign of no learning
    good = audit(runs.assign(accuracy=1.0, start_accuracy=1.0))
    assert not good.flags["unmoved"].any()  # no image is left to move
    fine = audit(runs.assign(test_samples=math.nan))
    assert not fine.flags["unmoved"].any()


def test_diverged_runs() -> None:
    runs = study("simclr", heads=3)
    runs.loc[4, ["train_loss", "verdict"]] = [math.nan, "diverged"]
    found = audit(runs)
    assert found.flags["no_signal"].tolist() == [False] * 4 + [True]
    assert found.flags["reasons"][4] == "diverged"


def test_correlations_with_and_without_the_dead() -> None:
    runs = study("moco", seed=3)
    random = np.random.default_rng(0)
    dead = np.arange(len(runs)) >= 16
    runs.loc[dead, "train_loss"] = constant("moco")
    runs.loc[dead, "accuracy"] -= 0.5
    runs["good@projector"] = np.where(dead, 1.0, 9.0) + random.uniform(0, 1, len(runs))
    runs["low@backbone"] = -runs["good@projector"]
    runs["one@backbone"] = 1 + random.uniform(-1, 1, len(runs))
    runs["flat@kernels"] = 0.0
    runs["idle@kernels"] = 1.0
    runs.loc[3, "one@backbone"] = math.nan
    better = {"low@backbone": "lower", "one@backbone": "near 1", "idle@kernels": "none"}
    found = audit(runs, better).correlations.set_index("score")
    assert found.index.tolist() == [
        "good@projector", "low@backbone", "one@backbone", "flat@kernels",
    ]  # fmt: skip
    assert found.loc["good@projector", ["n_all", "n_left"]].tolist() == [26, 16]
    assert found.loc["one@backbone", ["n_all", "n_left"]].tolist() == [25, 15]
    assert found.loc["flat@kernels", ["pearson_all", "spearman_left"]].isna().all()
    x, y = runs["good@projector"].to_numpy(), runs["accuracy"].to_numpy()
    quality = -np.abs(runs["one@backbone"] - 1)
    use = ~quality.isna()
    for which, chosen in (("all", dead | True), ("left", ~dead)):
        pearson = np.corrcoef(x[chosen], y[chosen])[0, 1]
        spearman = np.corrcoef(rankdata(x[chosen]), rankdata(y[chosen]))[0, 1]
        for name in ("good@projector", "low@backbone"):
            assert found.loc[name, f"pearson_{which}"] == pytest.approx(pearson)
            assert found.loc[name, f"spearman_{which}"] == pytest.approx(spearman)
        near = np.corrcoef(quality[chosen & use], y[chosen & use])[0, 1]
        assert found.loc["one@backbone", f"pearson_{which}"] == pytest.approx(near)
    told = [text for text in audit(runs, better).sentences if " good@projector:" in text]
    assert len(told) == 1
    assert "over 26 runs" in told[0]
    assert "over the 16 that are not flagged" in told[0]


def test_printed() -> None:
    runs = study("swav")
    runs.loc[4:9, ["train_loss", "accuracy"]] = [constant("swav"), 0.1]
    runs["good@projector"] = runs["accuracy"] ** 2
    found = audit(runs)
    console = Console(record=True, width=40, file=io.StringIO())
    print_audit(found, console)
    text = console.export_text()
    for sentence in found.sentences:
        assert sentence in text
    rows = [line.split() for line in text.splitlines()]
    titles = ["data", "method", "head", "runs", "no", "signal", "no", "learning", "identical"]
    assert rows[0] == [*titles, "flagged"]  # no column for what was not found
    assert rows[2] == ["birds", "swav", "rbfn", "24", "6", "6", "6", "6"]  # nothing cut
    assert ["good@projector"] in [row[:1] for row in rows]


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="no column train_loss"):
        audit(study().drop(columns="train_loss"))
    with pytest.raises(ValueError, match="is empty"):
        audit(study().iloc[:0])
    with pytest.raises(ValueError, match="unknown direction 'up'"):
        audit(study(**{"x@y": 1.0}), {"x@y": "up"})


def test_by_dataset_and_without_accuracy() -> None:
    """Two datasets of other accuracies do not blur each other; the loss needs no accuracy."""
    first, second = study("moco", seed=1), study("moco", seed=1)
    for runs in (first, second):
        runs["good@projector"] = runs["accuracy"] ** 2
    second["accuracy"] -= 0.4
    found = audit(pd.concat([first, second.assign(data="other")])).correlations
    assert len(found) == 2
    assert found["spearman_all"].tolist() == pytest.approx([1.0, 1.0])
    runs = study("moco").drop(columns="accuracy")
    runs.loc[3, "train_loss"] = constant("moco")
    assert audit(runs).flags["no_signal"].sum() == 1


def test_as_many_right_images_may_be_others() -> None:
    runs = study("moco").assign(start_accuracy=0.5, start_f1=0.5, test_samples=360)
    runs.loc[[2, 3], ["accuracy", "f1"]] = [[0.5, 0.5], [0.5, 0.497]]
    assert audit(runs).flags["unmoved"].to_numpy().nonzero()[0].tolist() == [2]


def test_few_columns_are_enough() -> None:
    """Without sizes nothing can be said of the loss, and that is said."""
    names = ["run", "data", "method", "head", "train_loss", "accuracy"]
    found = audit(study("moco")[names])
    assert not found.flags[list(RULES)].to_numpy().any()
    assert found.sentences[-1] == "not checked, no loss or size known: 26 runs of birds moco"


def test_training_knows_better_than_the_loss() -> None:
    """A young MoCo: the loss of a constant output with embeddings that are spread, and the other
    way round: a dead head whose loss is below it."""
    base = {"data": "d", "method": "moco", "queue_size": 511, "accuracy": 0.5, "epoch": 2}
    rows = [
        base | {"head": "default", "train_loss": 6.21, "spread": 0.9, "verdict": "ok"},
        base | {"head": "rbfn", "train_loss": 6.5, "spread": 0.9, "verdict": "ok"},
        base | {"head": "rbfn", "train_loss": 6.5, "spread": 0.01, "verdict": "ok"},
        base | {"head": "rbfn-paper", "train_loss": 6.0, "spread": 0.0, "verdict": "dead head"},
    ]
    found = audit(pd.DataFrame(rows).assign(run=list("abcd"), accuracy=[0.5, 0.6, 0.55, 0.4]))
    assert found.flags["no_signal"].tolist() == [False, False, True, True]
    assert not found.flags["no_learning"].any()  # the default head has gone nowhere either
    assert found.flags["reasons"].tolist()[3] == "dead head"
    assert any(
        "d moco rbfn-paper: 1 of 1 runs have a constant output" in s for s in found.sentences
    )


def test_a_good_run_is_not_accused_by_its_loss() -> None:
    """MoCo on digits, as it came out; c is ln 513. The embeddings are near, not one."""
    base = {"data": "digits", "method": "moco", "queue_size": 512, "epoch": 5, "verdict": "ok"}
    default = base | {"head": "default", "accuracy_low": 0.86, "start_accuracy": 0.881}
    rows = [
        default | {"train_loss": 6.20610, "spread": 0.116, "accuracy": 0.883},
        default | {"train_loss": 6.21288, "spread": 0.040, "accuracy": 0.892},
        default | {"train_loss": 6.21278, "spread": 0.040, "accuracy": 0.900},
        base | {"head": "rbfn", "train_loss": 6.64, "spread": 0.98, "accuracy": 0.93},
    ]
    found = audit(pd.DataFrame(rows).assign(run=list("abcd")))
    assert not found.flags[list(RULES)].to_numpy().any(), found.flags["reasons"].tolist()


def test_labels_overrule_the_loss() -> None:
    """At the loss of a constant output, with an accuracy that is clearly above the start's."""
    runs = study("moco", heads=4, start_accuracy=0.5)
    runs["accuracy_low"] = [0.6, 0.6, 0.6, 0.49, math.nan, 0.6]
    runs.loc[2:4, "train_loss"] = constant("moco")
    found = audit(runs).flags
    assert found["no_signal"].tolist() == [False, False, False, True, True, False]
    assert found["no_learning"].tolist() == [False, False, False, True, True, False]
