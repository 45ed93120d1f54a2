"""One worker: steps in order, failures recorded and tried again, what is done left alone."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from study_cases import facts

from radial.cli import main
from radial.study import worker as module
from radial.study.claims import MOST, claim, newest
from radial.study.plan import Study, from_values
from radial.study.results import read_runs
from radial.study.store import EVALUATION, RESULT, SCORES, Store, Watcher, count, headline, left_out
from radial.study.worker import STEPS, Job, Worker

Make = Callable[..., Study]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Make) -> Store:
    """A study of two runs, worked on once."""
    store = Store(tmp_path_factory.mktemp("worker") / "study")
    store.create(tiny(seeds=[0]))
    assert Worker(store, session="first", threads=1).work() == 2
    return store


def test_each_step_has_its_file_and_is_not_repeated(done: Store) -> None:
    before = {p: p.stat().st_mtime_ns for p in done.path.rglob("*") if p.is_file()}
    assert Worker(done, session="second", threads=1).work() == 0
    assert {p: p.stat().st_mtime_ns for p in done.path.rglob("*") if p.is_file()} == before
    for run in done.runs():
        assert {RESULT, EVALUATION, SCORES} <= {p.name for p in done.run(run).iterdir()}
    assert not list((done.path / "claims").iterdir())


def test_the_frame_holds_settings_result_labels_and_scores(done: Store) -> None:
    runs = read_runs(done.path)
    assert list(runs["head"]) == ["default", "rbfn"]
    assert list(runs["num_kernels"].isna()) == [True, False]
    for column in (
        "accuracy",
        "f1",
        "train_loss",
        "constant_loss",
        "knn_1pct",
        "logistic_1pct",
        "logistic_10pct",
        "rankme@backbone",
    ):
        assert runs[column].notna().all(), column
    assert runs["start_accuracy"].nunique() == 1  # the same backbone and seed
    assert (runs["precision"] <= 1).all()  # of the classification, not of the arithmetic
    evaluation = json.loads((done.run(runs["run"][0]) / EVALUATION).read_text())
    assert evaluation["knn_few"]["labels"] == 2  # one of each class
    assert evaluation["probes"]["exact"]["accuracy"] == runs["accuracy"][0]


def test_status_counts(done: Store) -> None:
    states = Watcher(done).look()
    assert count(states) == {"done": 2}
    assert headline(states).startswith("2 of 2 done")


def test_an_unreadable_result_is_kept_and_the_run_done_again(
    done: Store, tmp_path: Path, tiny: Make
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"]))
    run = store.study().runs()[0].id
    told: list[str] = []
    Worker(store, session="a", threads=1).work()
    assert facts(store)[run] == facts(done)[run]
    (store.run(run) / RESULT).write_text("{ broken")
    states = Watcher(store, tell=told.append).look()
    assert count(states) == {"left": 1}
    assert "cannot be read and counts as not done" in told[0]
    Worker(store, session="b", threads=1, tell=told.append).work()
    assert (store.run(run) / f"{RESULT}.unreadable-1").read_text() == "{ broken"
    assert facts(store)[run] == facts(done)[run]


def test_a_failure_is_recorded_and_tried_again_in_the_next_session(
    tmp_path: Path, tiny: Make
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"], score=False))
    run = store.study().runs()[0].id
    calls: list[str] = []

    def breaks(job: Job) -> None:
        calls.append("evaluate")
        raise ValueError("no such\n labels")

    todo = {**STEPS, EVALUATION: breaks}
    assert Worker(store, session="a", threads=1, todo=todo).work() == 0
    assert store.failure(run)["error"] == "ValueError: no such labels"
    assert store.failure(run)["step"] == EVALUATION
    assert "Traceback" in (store.path / "logs" / f"{run}.log").read_text()
    assert count(Watcher(store).look()) == {"failed": 1}
    assert Worker(store, session="a", threads=1, todo=todo).work() == 0
    assert calls == ["evaluate"]  # not again in the same session
    trained = (store.run(run) / RESULT).stat().st_mtime_ns
    assert Worker(store, session="b", threads=1).work() == 1
    assert (store.run(run) / RESULT).stat().st_mtime_ns == trained  # that step was complete
    assert store.failure(run) == {}


def test_a_worker_with_a_broken_gpu_leaves(tmp_path: Path, tiny: Make) -> None:
    """Its next runs would fail as well: another process must take them."""
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0, 1], heads=["default"]))

    def breaks(job: Job) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(SystemExit):
        Worker(store, session="a", threads=1, todo={**STEPS, RESULT: breaks}).work()
    assert count(Watcher(store).look()) == {"failed": 1, "left": 1}


def test_a_run_that_takes_its_worker_down_is_given_up(tmp_path: Path, tiny: Make) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"]))
    run = store.study().runs()[0].id
    dead_claims(store, run, [store.progress(run)] * MOST)
    assert Worker(store, session="a", threads=1).work() == 0
    assert store.failure(run)["error"].startswith(f"RuntimeError: its worker died {MOST} times")
    assert newest(store.path / "claims", run) == 0
    assert Worker(store, session="b", threads=1).work() == 1


def dead_claims(store: Store, run: str, progress: list[object]) -> None:
    """Of holders that are gone, each with how far it found the run; None: it wrote no claim."""
    for number, found in enumerate(progress, start=1):
        path = store.path / "claims" / f"{run}.{number}"
        path.write_text("" if found is None else json.dumps({"progress": found}))
        os.utime(path, (0, 0))


@pytest.mark.parametrize("progress", [[None] * 4, [[0, n] for n in (0, 3, 4, 5)]])
def test_deaths_count_only_where_they_got_a_run_no_further(
    tmp_path: Path, tiny: Make, progress: list[object]
) -> None:
    """A full disk leaves empty claims; nodes are lost with progress in between."""
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"], evaluate=False, score=False))
    dead_claims(store, store.study().runs()[0].id, progress)
    assert Worker(store, session="a", threads=1).work() == 1


def test_a_worker_writes_nothing_for_a_run_that_is_anothers(tmp_path: Path, tiny: Make) -> None:
    """Taken over while it trained, as when it was halted and woke up: the fence holds."""
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"], evaluate=False, score=False))
    run = store.study().runs()[0].id
    said: list[str] = []

    def taken(job: Job) -> None:
        (store.path / "claims" / f"{run}.2").write_text("{}")
        STEPS[RESULT](job)

    worker = Worker(store, session="a", threads=1, tell=said.append, todo={**STEPS, RESULT: taken})
    assert worker.work(limit=1) == 0
    assert said == [f"{run} was taken over by another worker"]
    assert [path.name for path in store.run(run).rglob("*")] == []
    assert not store.failure(run)


@pytest.mark.parametrize(
    ("name", "content"), [("last.ckpt", b"PK"), ("config.yaml", b""), ("metrics.csv", b"1,2\n")]
)
def test_a_finished_run_with_a_damaged_file_is_mended(
    done: Store, tmp_path: Path, name: str, content: bytes
) -> None:
    shutil.copytree(done.path, tmp_path / "study")
    store = Store(tmp_path / "study")
    run = store.runs()[0]
    (store.run(run) / name).write_bytes(content)
    (store.run(run) / EVALUATION).unlink()
    assert Worker(store, session="a", threads=1).work() == 1
    assert facts(store) == facts(done)


def test_a_run_that_another_holds_is_left_alone(tmp_path: Path, tiny: Make) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], score=False, evaluate=False))
    first, second = store.study().runs()
    held = claim(store.path / "claims", first.id)
    assert held is not None
    assert Worker(store, session="a", threads=1).work() == 1
    assert count(Watcher(store).look()) == {"running": 1, "done": 1}
    held.release()
    assert store.runs() == [second.id]


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_written_for_a_run_that_was_taken_over(
    tmp_path: Path, tiny: Make, fails: bool
) -> None:
    store, told = Store(tmp_path / "study"), []
    store.create(tiny(seeds=[0], heads=["default"]))
    run = store.study().runs()[0].id

    def taken_over(job: Job) -> None:
        (store.path / "claims" / f"{run}.2").write_text("{}")
        if fails:
            raise ValueError("too late")

    def evaluates(job: Job) -> None:
        raise AssertionError("another's run")

    todo = {**STEPS, RESULT: taken_over, EVALUATION: evaluates}
    assert Worker(store, session="a", threads=1, todo=todo, tell=told.append).work() == 0
    assert store.failure(run) == {}
    assert ("taken over" in told[0]) is not fails
    assert newest(store.path / "claims", run) == 2  # the other's claim is left alone


def test_a_checkpoint_that_cannot_be_read_is_set_aside(
    done: Store, tmp_path: Path, tiny: Make
) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"]))
    run = store.study().runs()[0].id
    Worker(store, session="a", threads=1).work()
    (store.run(run) / RESULT).unlink()
    (store.run(run) / "last.ckpt").write_bytes(b"half")
    assert Worker(store, session="b", threads=1).work() == 1
    assert (store.run(run) / "last.ckpt.unreadable").read_bytes() == b"half"
    assert facts(store)[run] == facts(done)[run]


def test_weights_are_removed_where_they_are_not_wanted(tmp_path: Path, tiny: Make) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"], keep_weights=False))
    assert Worker(store, session="a", threads=1).work() == 1
    assert not list(store.path.rglob("*.ckpt"))
    assert Worker(store, session="b", threads=1).work() == 0


def test_a_run_without_its_weights_is_trained_again(tmp_path: Path, tiny: Make) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"], keep_weights=False))
    Worker(store, session="a", threads=1).work()
    before = facts(store)
    (store.run(store.runs()[0]) / SCORES).write_text("{")
    assert Worker(store, session="b", threads=1).work() == 1
    assert facts(store) == before


def test_a_changed_evaluation_is_made_again(tmp_path: Path, tiny: Make) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"]))
    Worker(store, session="a", threads=1).work()
    trained = (store.run(store.runs()[0]) / RESULT).stat().st_mtime_ns
    store.create(tiny(seeds=[0], heads=["default"], evaluate={"protocol": ["paper"]}))
    with pytest.raises(ValueError, match=r"no complete run"):
        read_runs(store.path)
    assert Worker(store, session="b", threads=1).work() == 1
    assert (store.run(store.runs()[0]) / RESULT).stat().st_mtime_ns == trained
    assert read_runs(store.path)["protocol"].tolist() == ["paper"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "a: ["),
        ("config.yaml", "[]"),
        (EVALUATION, '{"probes": {"exact": 3}, ASKED}'),
    ],
)
def test_a_broken_run_does_not_hide_the_others(
    done: Store, tmp_path: Path, name: str, text: str
) -> None:
    store = Store(tmp_path / "study")
    shutil.copytree(done.path, store.path)
    asked = store.steps(store.study())[EVALUATION]
    path = store.run(store.runs()[0]) / name
    path.write_text(text.replace("ASKED", f'"asked": "{asked}"'))
    told: list[str] = []
    assert len(read_runs(store.path, tell=told.append)) == 1
    assert "counts as not done" in told[0]


def test_a_file_that_does_not_say_how_it_was_made_is_not_taken(done: Store, tmp_path: Path) -> None:
    store = Store(tmp_path / "study")
    shutil.copytree(done.path, store.path)
    path = store.run(store.runs()[0]) / EVALUATION
    values = json.loads(path.read_text())
    del values["asked"]
    path.write_text(json.dumps(values))
    told: list[str] = []
    assert len(read_runs(store.path, tell=told.append)) == 1
    assert told == [f"{path} was made with other settings: not done"]


def test_only_the_current_plan_counts(
    done: Store, tmp_path: Path, tiny: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status, table, audit and report cover the same runs; those of an earlier plan are said."""
    store = Store(tmp_path / "study")
    shutil.copytree(done.path, store.path)
    store.create(tiny(seeds=[0], heads=["default"]))
    told: list[str] = []
    assert read_runs(store.path, tell=told.append)["head"].tolist() == ["default"]
    assert told == [left_out(["one"])]
    everything = read_runs(store.path, all_runs=True, tell=told.append)
    assert everything["head"].tolist() == ["default", "rbfn"]
    assert len(told) == 1
    assert main(["study", "status", str(store.path)]) == 0
    status = capsys.readouterr().out
    assert status.startswith("1 of 1 done")
    assert left_out(["one"]) in status
    for options, runs in ((), 1), (("--all-runs",), 2):
        flags = tmp_path / "flags.csv"
        assert main(["study", "audit", str(store.path), "--csv", str(flags), *options]) == 0
        assert len(pd.read_csv(flags)) == runs
        tables = ["--tables", str(tmp_path / "tables"), "--html", str(tmp_path / "r.html")]
        assert main(["study", "report", str(store.path), "--small", *tables, *options]) == 0
        assert len(pd.read_csv(tmp_path / "tables" / "runs.csv")) == runs
        assert capsys.readouterr().err.count(left_out(["one"])) == (2 if runs == 1 else 0)


def test_what_failed_meanwhile_is_not_taken(tmp_path: Path, tiny: Make) -> None:
    """Between the look at a run and its claim another worker of the session may have failed."""
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"]))
    run = store.study().runs()[0].id

    class Late(Store):
        looks = 0

        def failure(self, run: str) -> dict[str, object]:
            Late.looks += 1
            return {} if Late.looks == 1 else {"session": "a"}

    assert Worker(Late(store.path), session="a", threads=1).claim() is None
    assert newest(store.path / "claims", run) == 0


def test_a_worker_that_must_leave_gives_its_run_back(tmp_path: Path, tiny: Make) -> None:
    store = Store(tmp_path / "study")
    store.create(tiny(seeds=[0], heads=["default"]))
    worker = Worker(store, session="a", threads=1)
    found = worker.claim()
    assert found is not None
    worker.let_go()
    assert newest(store.path / "claims", found[0].id) == 0


def test_checkpoints_on_the_way_are_rows_of_their_own(tmp_path: Path, tiny: Make) -> None:
    study = tiny(seeds=[0], heads=["default"])
    study = replace(study, constants={**study.constants, "save_every": 1}, checkpoints=True)
    store = Store(tmp_path / "study")
    store.create(study)
    assert Worker(store, session="a", threads=1).work() == 1
    runs = read_runs(store.path)
    assert list(runs["epoch"]) == [3, 1, 2]
    assert list(runs["steps"]) == [12, 4, 8]
    assert runs["run"].is_unique
    assert runs["train_loss"].is_unique
    assert runs["rankme@backbone"].is_unique
    assert runs["start_accuracy"].nunique() == 1
    assert runs["verdict"].tolist()[0] == "ok"
    assert runs["verdict"][1:].isna().all()
    with pytest.raises(ValueError, match=r"checkpoints needs save_every"):
        tiny(checkpoints=True)


def test_checkpoints_of_named_epochs_only(tmp_path: Path, tiny: Make) -> None:
    study = tiny(seeds=[0], heads=["default"])
    study = replace(study, constants={**study.constants, "save_every": 1}, checkpoints=[1, 3])
    store = Store(tmp_path / "study")
    store.create(study)
    steps = store.steps(study)
    assert Worker(store, session="a", threads=1).work() == 1
    runs = read_runs(store.path)
    assert list(runs["epoch"]) == [3, 1]
    run = study.runs()[0].id
    assert store.missing(run, steps) == []
    assert store.missing(run, store.steps(replace(study, checkpoints=True))) == ["checkpoints.json"]
    with pytest.raises(ValueError, match=r"checkpoints: epoch"):
        replace(study, checkpoints=[0])
    other = Store(tmp_path / "other")
    other.create(replace(study, constants={**study.constants, "save_every": 2}))
    assert Worker(other, session="a", threads=1).work() == 0
    assert "epoch 1 was not kept: see save_every" in str(other.failure(run))
    with pytest.raises(ValueError, match=r"checkpoints must be a bool or list, not 'all'"):
        from_values({"checkpoints": "all"})


@pytest.mark.slow
def test_a_run_on_two_devices_is_trained_by_a_process_of_its_own(
    tmp_path: Path, tiny: Make
) -> None:
    study = tiny(seeds=[0], heads=["default"], evaluate=False, score=False)
    study = replace(study, constants={**study.constants, "devices": 2, "accelerator": "cpu"})
    store = Store(tmp_path / "study")
    store.create(study)
    assert Worker(store, session="a", threads=1).work() == 1
    assert (
        "per rank"
        in json.loads(next(store.path.glob("runs/*/result.json")).read_text())["batch_norm"]
    )


def test_the_error_of_such_a_process_is_told(tmp_path: Path, tiny: Make) -> None:
    study = tiny(seeds=[0], heads=["default"], evaluate=False, score=False)
    study = replace(study, constants={**study.constants, "devices": 3, "accelerator": "cpu"})
    store = Store(tmp_path / "study")
    store.create(study)
    assert Worker(store, session="a", threads=1).work() == 0
    error = store.failure(store.study().runs()[0].id)["error"]
    assert "cannot be divided among 3 devices" in error


def test_such_a_process_that_leaves_no_result_has_failed(
    tmp_path: Path, tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 is a run that was stopped, with a result; without one it would go round."""
    study = tiny(seeds=[0], heads=["default"], evaluate=False, score=False)
    study = replace(study, constants={**study.constants, "devices": 2, "accelerator": "cpu"})
    store = Store(tmp_path / "study")
    store.create(study)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no such module >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert Worker(store, session="a", threads=1).work(limit=3) == 0
    assert store.failure(store.study().runs()[0].id)["error"].endswith("1: no such module")


def test_a_worker_knows_its_options() -> None:
    with pytest.raises(SystemExit):
        module.main(["nowhere"])
    with pytest.raises(ValueError, match=r"is not a study"):
        module.main(["nowhere", "--session", "a"])
