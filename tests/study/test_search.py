"""A search: its space, what Optuna makes of it, and a whole one that is interrupted anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
import yaml

from browser_probe import TELL, browse
from radial.checkpoints import read_checkpoint
from radial.cli import main
from radial.data.datasets import load_data
from radial.evaluation.probe import ProbeResult, few_label_probe
from radial.study.calls import StudyResult
from radial.study.plan import Study, read_study
from radial.study.report.search import Found, page, sentences
from radial.study.search import (
    SPACES,
    Search,
    as_search,
    configured,
    default_params,
    preset_search,
    suggest,
)
from radial.study.store import Store, Watcher
from radial.study.tune import (
    COMPLETE,
    PRUNED,
    Trial,
    TrialWorker,
    best,
    falls_behind,
    finish,
    history,
    propose,
    write_trial,
)
from radial.training.config import DEFAULTS, RunConfig, resolve
from radial.training.run import resume, train

Make = Callable[..., Study]
SPACE = {"base_lr": {"low": 0.001, "high": 1.0, "log": True}, "temperature": [0.1, 0.5]}
TUNE = {"trials": 5, "confirm": 1, "part": "train", "images": 32, "first": 1, "reduction": 2}


def searched(tiny: Make, **changes: Any) -> Study:
    given = {"heads": ["default"], "seeds": [0], "score": False, "grid": SPACE, "tune": TUNE}
    return tiny(**given | changes)


def test_a_pause_leaves_no_trace(config: Callable[..., RunConfig], tmp_path: Path) -> None:
    straight = train(config())
    paused = config(out=str(tmp_path / "paused"))
    first = train(paused, until=1)
    assert first.epochs == 1
    assert not (tmp_path / "paused" / "result.json").exists()
    assert resume(tmp_path / "paused", until=2).epochs == 2
    result = resume(tmp_path / "paused")
    again = resume(tmp_path / "paused", until=3)  # nothing left to train
    for name in ("verdict", "steps", "epochs", "train_loss", "val_loss", "spread"):
        assert getattr(result, name) == getattr(straight, name) == getattr(again, name)
    a, b = (read_checkpoint(tmp_path / name / "last.ckpt") for name in ("run", "paused"))
    assert all(torch.equal(value, b["state_dict"][key]) for key, value in a["state_dict"].items())


@pytest.mark.parametrize("method", SPACES)
def test_a_space_holds_the_defaults_and_its_ends_train(method: str) -> None:
    study = as_search(preset_search(method, {"data": "digits", "epochs": 20}))
    runs = study.runs()  # checks the ends of every range
    assert [run.id for run in runs][:2] == ["trial-000", "trial-001"]
    assert [run.config.seed for run in runs][-2:] == [3, 3]
    config = configured(study, {}, 0)
    assert config == RunConfig(method=method, data="digits", epochs=20)
    whole = resolve(config, images=1257, image_size=32, features=64)
    known = default_params(study, whole)
    if method in ("barlow_twins", "vicreg"):  # a weight that only the method knows
        assert known is None
    else:
        assert known is not None
        assert known["base_lr"] == DEFAULTS[method]["base_lr"]
        assert set(known) == set(SPACES[method])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {}}, "nothing to search"),
        ({"grid": {"base_lr": {"low": 1.0, "high": 0.1}}}, "no range from 1.0 to 0.1"),
        ({"grid": {"base_lr": {"from": 1.0}}}, "a range is {low, high}"),
        ({"grid": {"base_lr": {"low": 0.0, "high": 0.1, "log": True}}}, "no range from 0.0"),
        ({"grid": {"temperature": {"low": -1.0, "high": 0.1}}}, "temperature"),
        ({"grid": {"temperature": []}}, "range of temperature is empty"),
        ({"seeds": [0, 1]}, "one seed"),
        ({"tune": {"trails": 3}}, "unknown trails; known: trials"),
        ({"tune": {"trials": 0}}, "tune: trials"),
        ({"tune": {"score": "rank"}}, "rank"),
        ({"tune": {"sampler": "grid"}}, "'tpe', 'random'"),
        ({"constants": {"data": "digits", "devices": 2}}, "one process"),
    ],
)
def test_a_search_that_makes_no_sense(tiny: Make, changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        searched(tiny, **changes).runs()


def test_methods_and_heads_are_chosen_too(tiny: Make) -> None:
    study = searched(
        tiny, methods={"simclr": {"temperature": [0.2, 0.4]}, "byol": {}}, grid={},
        heads={"default": {}, "rbfn": {"num_kernels": {"low": 4, "high": 16}}},
    )  # fmt: skip
    seen = [propose(study, number, ()) for number in range(20)]
    for params in seen:
        config = configured(study, params, 7)
        assert (config.method, config.head, config.seed) == (params["method"], params["head"], 7)
        assert ("simclr.temperature" in params) == (config.method == "simclr")
        assert ("rbfn.num_kernels" in params) == (config.head == "rbfn")
        if config.head == "rbfn":
            assert config.num_kernels == params["rbfn.num_kernels"]
            assert 4 <= config.num_kernels <= 16
    assert len({(p["method"], p["head"]) for p in seen}) == 4


def test_trials_are_those_of_optunas_own_loop(tiny: Make) -> None:
    """The study that is made anew for each question is one that Optuna kept all along."""
    constants = {**tiny().constants, "epochs": 9}
    study = searched(tiny, constants=constants, tune={"trials": 30, "reduction": 3})
    rungs = [*Search().rungs(9), 9]
    assert rungs == [1, 3, 9]

    def score(params: dict[str, Any], epoch: int) -> float:
        return math.sin(9 * math.log(params["base_lr"])) * epoch / 9 + params["temperature"]

    native = optuna.create_study(
        direction="maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=3),
    )
    trials: list[Trial] = []
    for number in range(30):
        native.sampler = optuna.samplers.TPESampler(seed=Search().seed_of(number))
        theirs = native.ask()
        suggest(theirs, study)
        ours = Trial(id=f"trial-{number:03d}", params=propose(study, number, trials))
        assert ours.params == theirs.params
        for epoch in rungs:
            ours.values[epoch] = score(theirs.params, epoch)
            theirs.report(ours.values[epoch], epoch)
            out = theirs.should_prune()
            if epoch < 9:
                assert falls_behind(study, ours, trials) == out
            if out and epoch < 9:
                native.tell(theirs, state=optuna.trial.TrialState.PRUNED)
                ours.state = PRUNED
                break
        else:
            native.tell(theirs, ours.values[9])
            ours.state = COMPLETE
        trials.append(ours)
    assert 10 < sum(trial.state == PRUNED for trial in trials) < 30


def test_what_is_not_finite_is_pruned_and_learned_from(tiny: Make) -> None:
    study = searched(tiny)
    broken = [
        Trial(id=f"trial-{n:03d}", params={"base_lr": 0.9, "temperature": 0.1}, values={1: None},
              state=PRUNED)
        for n in range(4)
    ]  # fmt: skip
    assert propose(study, 4, broken)
    late = replace(broken[0], id="trial-004", values={1: 0.5, 2: None}, state="running")
    assert falls_behind(study, late, broken)


def done(path: Path, study: Study) -> Store:
    store = Store(path)
    store.create(study)
    worker = TrialWorker(store, session="quiet", threads=1)
    assert worker.work() == len(study.runs())
    finish(store)
    return store


def told(store: Store) -> list[dict[str, Any]]:
    """All that a search found but for the time it took."""
    found = [json.loads(path.read_text()) for path in sorted(store.path.glob("trials/*.json"))]
    return [{name: v for name, v in one.items() if name != "seconds"} for one in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: Make) -> Store:
    return done(tmp_path_factory.mktemp("search") / "whole", searched(tiny))


class Killed(BaseException):
    """Nothing in a worker catches it."""


@pytest.mark.parametrize("first", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_search_goes_on_where_it_was(
    whole: Store, tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Ended at every second write of a trial's file, before it and after it in turn."""
    from radial.study import tune

    store = Store(tmp_path / "killed")
    store.create(searched(tiny))
    write, calls = tune.write_trial, first

    def fatal(where: Store, trial: Trial) -> None:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            raise Killed
        write(where, trial)
        if calls % 4 == 2:
            raise Killed

    monkeypatch.setattr(tune, "write_trial", fatal)
    kills = 0
    while True:
        worker = TrialWorker(store, session="killed", threads=1)
        try:
            worker.work()
            break
        except Killed:
            kills += 1
    assert kills > 8
    assert told(store) == told(whole)
    assert best(store, store.study()) == replace(
        best(whole, whole.study()), seconds=best(store, store.study()).seconds
    )


def test_the_best_is_ready_and_optuna_reads_the_search(whole: Store, tmp_path: Path) -> None:
    study, trials = whole.study(), history(whole, whole.study())
    states = Watcher(whole).look()
    assert {state.state for state in states} == {"done"}
    result = StudyResult(store=whole, states=tuple(states))
    table = result.table.set_index("run")
    assert list(table.index) == [run.id for run in study.runs()]
    for trial in trials:
        epochs = json.loads((whole.run(trial.id) / "result.json").read_text())["epochs"]
        assert table.loc[trial.id, "epochs"] == epochs == max(trial.values)
    complete = [trial for trial in trials if trial.state == COMPLETE]
    assert 0 < len(complete) < 5
    chosen = max(complete, key=lambda trial: trial.values[3] or 0)
    assert best(whole, study) == chosen
    assert table.loc["best-1", "of"] == chosen.id
    assert table["accuracy"].between(0, 1).all()
    again = optuna.load_study(
        study_name=study.name,
        storage=optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(whole.path / "optuna.log"))
        ),
    )
    assert again.best_params == chosen.params
    assert again.best_value == chosen.value
    assert chosen.id in result.told()
    assert main(["export", str(result.best), "--to", str(tmp_path / "b.safetensors")]) == 0
    assert main(["score", str(result.best), "--data", study.constants["data"]]) == 0


def test_the_page(whole: Store, tmp_path: Path) -> None:
    probe = (
        "<script>addEventListener('load', () => setTimeout(() => { const found = {"
        " plots: [...document.querySelectorAll('.js-plotly-plot')].map("
        "p => p.querySelectorAll('.trace').length > 0 || p.textContent.length > 0),"
        " sections: [...document.querySelectorAll('section')].map(s => s.id),"
        " rows: document.querySelectorAll('#trials tbody tr').length,"
        " wide: document.documentElement.scrollWidth - innerWidth };" + TELL + "}, 1500));</script>"
    )
    text = page(Found(whole), Found(whole))
    assert "a regret of 0.0 points" in text  # against itself
    seen, complaints = browse(text, probe, tmp_path)
    assert complaints == []
    assert seen["sections"] == [
        "history", "importance", "parallel", "cost", "confirmed", "trials", "basis",
    ]  # fmt: skip
    assert seen["plots"] == [True] * 4
    assert seen["rows"] == 5
    assert seen["wide"] <= 0


def test_a_search_by_a_score_that_is_weak_for_the_method(
    whole: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Found(whole)
    (method,) = found.study.methods
    known = {(found.search.score, method): 0.25}
    monkeypatch.setattr("radial.scoring.leaderboard.weak", lambda *asked: known.get(asked))
    said = f"orders their runs of {method} poorly (ρ 0.25)"
    assert said in " ".join(sentences(found, None))
    known.clear()
    assert "poorly" not in " ".join(sentences(found, None))


def test_labels_choose_too(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe sees those of the training images, or a share of each class, and is judged on all
    validation images.
    """
    known: list[tuple[int, int, int, int]] = []

    def spy(*parts: torch.Tensor) -> ProbeResult:
        known.append((*map(len, parts[1::2]), *(int((y >= 0).sum()) for y in parts[1::2])))
        return few_label_probe(*parts)

    monkeypatch.setattr("radial.evaluation.probe.few_label_probe", spy)
    for labels, told in ((True, ""), (0.5, ", by 50 % of the training labels")):
        known.clear()
        plan = searched(tiny, evaluate=False)  # evaluation takes shares of its own
        study = as_search(plan, labels=labels, trials=2, confirm=0)
        store = done(tmp_path / str(labels), study)
        for trial in history(store, study):
            assert all(0 <= (value or 0) <= 1 for value in trial.values.values())
        assert f"accuracy on validation images{told}" in page(Found(store))
        (data,) = {run.config.data for run in study.runs()}
        whole = load_data(data)
        assert len(whole.train) != len(whole.val)
        ((images, judged, seen, judges),) = set(known)
        assert (images, judged, judges) == (len(whole.train), len(whole.val), len(whole.val))
        assert seen == pytest.approx(images * float(labels), abs=1)  # a class may round


@pytest.mark.parametrize("labels", [0, -0.1, 1.5, "few"])
def test_a_share_of_labels_is_one(tiny: Make, labels: Any) -> None:
    with pytest.raises(ValueError, match=r"tune: labels, a share such as 0\.01, must be"):
        as_search(searched(tiny), labels=labels).runs()


def test_trials_of_another_search_are_not_taken_for_its_own(tiny: Make, tmp_path: Path) -> None:
    """Their directory is refused; more trials, and what the machine alone decides, are not."""
    study, store = searched(tiny), Store(tmp_path / "search")
    store.create(study)
    store.create(as_search(study, labels=True))  # no trial was begun
    store.create(study)
    write_trial(store, Trial(id="trial-000", params=None))
    store.create(as_search(study, trials=9, confirm=2))
    store.create(replace(study, constants={**study.constants, "threads": 2}))
    before = (store.path / "study.yaml").read_text()
    for other, named in (
        (as_search(study, labels=0.5), "tune: labels"),
        (as_search(study, score="rankme@backbone"), "tune: score"),
        (replace(study, grid={**SPACE, "temperature": [0.1, 0.9]}), "temperature"),
        (replace(study, constants={**study.constants, "epochs": 9}), "epochs"),
    ):
        with pytest.raises(ValueError, match=f"search with another {named}: choose another --out"):
            store.create(other)
    assert (store.path / "study.yaml").read_text() == before


def test_the_command(tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    values = searched(tiny).to_dict()
    plan.write_text(yaml.safe_dump({**values, "tune": None}))
    out = ["--out", str(tmp_path / "out"), "--dry-run"]
    assert main(["tune", str(plan), *out, "--trials", "4", "--confirm", "2", "--labels"]) == 0
    assert "8 runs planned" in capsys.readouterr().out
    assert read_study(tmp_path / "out").tune == {"trials": 4, "confirm": 2, "labels": True}
    assert main(["study", "status", str(tmp_path / "out")]) == 0
    assert "0 of 8 done" in capsys.readouterr().out
    for wrong, said in (
        ([], "give a PLAN, or --preset METHOD"),
        (["--preset", "simcl"], "simclr"),
        (["--preset", "simclr"], "which data"),
        ([str(plan), "--score", "rank"], "rank"),
        ([str(plan), "--labels", "2"], "tune: labels, a share such as 0.01, must be"),
        (["--labels", str(plan)], "plan.yaml' is no share such as 0.01; PLAN comes first"),
        ([str(plan), "--executor", "dask"], "'local', 'ray'"),
        ([str(plan), "--set", "base_lr"], "KEY=VALUE"),
    ):
        assert main(["tune", *wrong]) == 2
        printed = capsys.readouterr().err
        assert said in printed
        assert printed.count("\n") == 1
    assert asdict(Search(score="view_retrieval")) == asdict(Search())
