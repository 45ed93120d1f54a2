"""A run that diverged is finished, and every table and page says what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from radial.cli import main
from radial.study.analysis.analyse import analyse
from radial.study.audit import audit
from radial.study.plan import Study
from radial.study.results import directions, read_runs
from radial.study.store import EVALUATION, Store, Watcher, count
from radial.study.worker import Worker

Make = Callable[..., Study]
LEARNING_RATES = [0.03, 0.1, 0.3, 1e6]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny: Make) -> Store:
    """Four runs by a real worker; the last cannot but diverge."""
    store = Store(tmp_path_factory.mktemp("diverged") / "study")
    study = tiny(heads=["default"], seeds=[0], grid={"base_lr": LEARNING_RATES})
    store.create(study)
    told: list[str] = []
    assert Worker(store, session="first", threads=1, tell=told.append).work() == 4, told
    return store


@pytest.fixture(scope="module")
def runs(store: Store) -> pd.DataFrame:
    return read_runs(store.path)


def test_it_is_done_and_its_evaluation_says_so(store: Store) -> None:
    states = Watcher(store).look()
    assert count(states) == {"done": 4}
    evaluation = json.loads((store.run(states[-1].run.id) / EVALUATION).read_text())
    assert (evaluation["verdict"], evaluation["probes"]) == ("diverged", {})
    assert "NaN or inf" in evaluation["reason"]


def test_it_has_a_row_without_an_accuracy(runs: pd.DataFrame) -> None:
    assert runs["base_lr"].tolist() == LEARNING_RATES
    assert runs["verdict"].tolist()[-1] == "diverged"
    assert runs["accuracy"].isna().tolist() == [False, False, False, True]
    assert runs["start_accuracy"].nunique(dropna=False) == 1  # it had a start like the others


def test_the_audit_flags_it(runs: pd.DataFrame) -> None:
    found = audit(runs, directions(runs))
    assert found.flags["no_signal"].tolist() == [False, False, False, True]
    assert found.flags["reasons"].iloc[-1] == "diverged"
    assert sum(text.endswith("1 of 4 runs diverged") for text in found.sentences) == 1
    assert not any("not checked" in text for text in found.sentences)


def test_analyses_leave_it_out_and_say_so(runs: pd.DataFrame) -> None:
    found = analyse(runs, directions(runs), resamples=20)
    assert "1 of 4 runs have no accuracy, 1 of them diverged: left out" in found.notes
    assert set(found.regret["n"]) == {3}
    assert set(found.regret["left_out"]) == {1}
    assert found.peaks["run"].tolist() != [runs["run"].iloc[-1]]


def test_the_report_lists_it(store: Store, runs: pd.DataFrame, tmp_path: Path) -> None:
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    options = ["--html", str(page), "--markdown", str(text), "--tables", str(tmp_path)]
    assert main(["study", "report", str(store.path), *options]) == 0
    diverged = runs["run"].iloc[-1]
    assert diverged in page.read_text(encoding="utf-8")
    assert "1 of 4 runs diverged" in text.read_text(encoding="utf-8")
    flags = pd.read_csv(tmp_path / "audit_flags.csv").set_index("run")
    assert flags.loc[diverged, "flags"] == "no signal"


def test_a_study_of_nothing_else(tmp_path: Path, tiny: Make) -> None:
    """With kernels, and with checkpoints that were kept on the way."""
    store, heads = Store(tmp_path / "study"), {"rbfn": {"num_kernels": 8, "save_every": 1}}
    store.create(tiny(heads=heads, seeds=[0], grid={"base_lr": [1e6]}, checkpoints=True))
    told: list[str] = []
    assert Worker(store, session="first", threads=1, tell=told.append).work() == 1, told
    runs = read_runs(store.path)
    assert runs["accuracy"].isna().all()
    assert (runs["verdict"] == "diverged").all()
    assert main(["study", "audit", str(store.path), "--csv", str(tmp_path / "flags.csv")]) == 0
    assert pd.read_csv(tmp_path / "flags.csv")["flags"].tolist() == ["no signal"]
    assert main(["study", "report", str(store.path), "--html", str(tmp_path / "report.html")]) == 0
