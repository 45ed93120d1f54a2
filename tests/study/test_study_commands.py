"""`radial study` as a new user types it: plans, runs, statuses, and one line for every mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from radial.cli import main
from radial.study.estimate import trials
from radial.study.plan import Study
from radial.study.store import Store

Make = Callable[..., Study]


@pytest.fixture
def file(tmp_path: Path, tiny: Make) -> Path:
    path = tmp_path / "mine.yaml"
    study = tiny(seeds=[0], heads=["default"], score=False)
    path.write_text(yaml.safe_dump(study.to_dict(), sort_keys=False))
    return path


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study"]) == main(["study", "--help"]) == 0
    text = capsys.readouterr().out
    for verb in ("plan", "run", "status", "submit", "import", "audit", "report"):
        assert f"\n  {verb} " in text
        with pytest.raises(SystemExit) as left:
            main(["study", verb, "--help"])
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: radial study {verb}")


def test_plan_lists_what_differs_and_estimates(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "plan", str(file), "--set", "seeds=[0, 1]"]) == 0
    text = capsys.readouterr().out
    assert "2 runs (tiny)" in text
    assert "seed" in text.splitlines()[0]
    assert "about" in text
    assert "timed steps" in text


def test_an_estimate_counts_the_steps(tiny: Make) -> None:
    study = tiny(seeds=[0, 1])
    found = trials(study, study.runs(), threads=1)
    assert [t.runs for t in found] == [2, 2]
    assert {t.steps for t in found} == {3 * (67 // 16)}  # 70 % of 96 images, epochs of 16
    assert all(t.train > 0 and t.rest > 0 for t in found)
    longer = tiny(constants={**study.constants, "epochs": 300})
    assert trials(longer, longer.runs()[:1], threads=1)[0].steps == 300 * 4


def test_no_data_no_estimate_but_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "plan", "paper-rbfn", "--set", "data=imagenet100:/none"]) == 0
    text = capsys.readouterr().out
    assert "216 runs" in text
    assert "no estimate: /none/train is not there" in text


def test_run_status_and_run_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["study", "run", str(file), "--workers", "1", "--threads", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 of 1 done")
    assert main(["study", "status", "studies/tiny", "--all"]) == 0
    assert "done" in capsys.readouterr().out
    run = next(Path("studies/tiny/runs").iterdir())
    assert json.loads((run / "environment.json").read_text())["threads"] == 1
    before = (run / "result.json").stat().st_mtime_ns
    assert main(["study", "run", "studies/tiny"]) == 0
    assert (run / "result.json").stat().st_mtime_ns == before


def test_a_failure_is_told_with_its_error(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    broken = ["study", "run", str(file), "--out", str(out), "--set", "batch_size=4096"]
    assert main([*broken, "--workers", "1"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "1 failed" in text
    assert "fewer than a batch of 4096" in text
    assert f"again with: radial study run {out}" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plans"], "unknown command 'plans'; known: plan, run"),
        (["plan"], "the following arguments are required: STUDY"),
        (["plan", "none.yaml"], "no study 'none.yaml'"),
        (["plan", "quick", "--set", "epochs"], "--set takes KEY=VALUE"),
        (["plan", "quick", "--set", "speed=3"], "unknown settings speed"),
        (["plan", "quick", "--set", "epochs=[]"], "the range of epochs is empty"),
        (["plan", "paper-rbfn"], "which data?"),
        (["plan", "quick", "--threads", "0"], "--threads must be at least 1, not 0"),
        (["run", "quick", "--executor", "dask"], "unknown executor 'dask'; known: 'local', 'ray'"),
        (["status", "nowhere"], "nowhere is not a study"),
        (["audit", "nowhere"], "nowhere is not a study"),
        (["report", "nowhere"], "nowhere is not a study"),
        (["import", "--mlflow-csv", "a.csv", "--out", "x"], "studies/published_tables.py"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("radial: error: ")
    assert message in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())


def test_a_very_large_grid_is_meant_twice(capsys: pytest.CaptureFixture[str]) -> None:
    large = ["study", "plan", "quick", "--no-trial", "--set", f"seeds={list(range(100))}"]
    assert main(large) == 2
    assert "1,400 runs are more than 1,000: give --yes" in capsys.readouterr().err
    assert main([*large, "--yes"]) == 0


def test_a_script_for_slurm(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a study"
    submit = ["study", "submit", str(file), "--out", str(out), "--cpus", "4", "--gpus", "1"]
    more = ["--time", "01:00:00", "--sbatch=--account=me", "--tasks", "8", "--dry-run"]
    assert main([*submit, *more]) == 0
    text = (out / "slurm.sh").read_text()
    for line in ("--array=0-7", "--cpus-per-task=4", "--gpus=1", "--time=01:00:00", "--account=me"):
        assert f"#SBATCH {line}\n" in text
    assert f"{sys.executable} -m radial.study.worker '{out}'" in text
    assert Store(out).study().name == "tiny"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(submit) == 2
    assert "there is no sbatch here" in capsys.readouterr().err
    assert main([*submit, "--sbatch=a\nrm -rf x"]) == 2


def test_without_ray_it_says_how_to_get_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    run = ["study", "run", str(file), "--out", str(tmp_path / "o"), "--executor", "ray"]
    assert main(run) == 2
    assert "pip install 'radial-ssl[ray]'" in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radial.checks.find_spec", lambda name: None)
    assert main(["study", "report", str(tmp_path)]) == 2
    assert "pip install 'radial-ssl[study]'" in capsys.readouterr().err
