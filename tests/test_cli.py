"""The command as a user types it: one line of error, exit code 2, nothing written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from radial import __version__
from radial.cli import main


def radial(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "radial.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom radial.cli import main\nmain(['--help'])\n"
        "print({'torch', 'jsonargparse', 'pytorch_lightning'} & set(sys.modules))"
    )
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - begin < 10  # in fact some 50 ms: no torch
    assert done.stdout.endswith("set()\n")
    assert "train" in done.stdout


def test_version(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_train_help_names_every_option(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in ("--method", "--head", "--data", "--preset", "--resume", "--config", "--knn"):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'; known: train, export"),
        (["train", "--method", "simclrr"], "unknown method 'simclrr'; known: 'simclr'"),
        (["train", "--epochs", "many"], "epochs"),
        (["train", "--epoch", "3"], "epoch"),
        (["train", "--data", "cifar11"], "unknown dataset 'cifar11'"),
        (["train", "--data", "folder:/nowhere/at/all"], "/nowhere/at/all"),
        (["train", "--preset", "papre"], "unknown preset 'papre'; known: 'paper'"),
        (["train", "--resume", "/nowhere/at/all"], "is not the directory of a run"),
        (["train", "--config", "/nowhere.yaml"], "nowhere.yaml"),
        (["train", "--resume", "x", "--preset", "paper"], "--preset is not for --resume"),
        (["train", "--resume", "x", "--overwrite"], "either --resume or --overwrite"),
        (["train", "--loggers=tensorbored"], "unknown logger 'tensorbored'"),
        (["train", "--radial-function", "gauss"], "unknown radial_function 'gauss'"),
        (["train", "--out", f"{__file__}/run"], "is a file"),
        (["train", "--backbone", "resnet19"], "unknown backbone 'resnet19'"),
    ],
)
def test_bad_input(arguments, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("radial: error: ")
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_config_with_unknown_or_mistyped_keys(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("methdo: simclr\n", "epochs: many\n", "epochs: [1, 2]\n", "- a list\n", "{"):
        Path("run.yaml").write_text(text)
        assert main(["train", "--config", "run.yaml"]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("radial: error: ")
        assert captured.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_empty_folder(capsys, tmp_path) -> None:
    (tmp_path / "images" / "cats").mkdir(parents=True)
    assert main(["train", "--data", f"folder:{tmp_path / 'images'}"]) == 2
    assert "image" in capsys.readouterr().err


def test_printed_config_is_a_config(capsys, tmp_path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--method", "moco", "--preset", "paper", "--print_config"])
    assert stop.value.code == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["method"] == "moco"


def test_train_resume_export_in_a_shell(tmp_path) -> None:
    """Digits, the default, from the first command to the exported file."""
    run, small = str(tmp_path / "run"), ["--backbone", "resnet9-w0.0625", "--threads", "2"]
    config = tmp_path / "run.yaml"
    config.write_text("method: moco\nhead: rbfn\nnum_kernels: 16\nbatch_size: 128\n")
    first = radial("train", "--config", str(config), "--epochs", "1", "--out", run, *small)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(f"ok: {run} (loss ")
    assert "moco with rbfn head on digits (1,257 images of 32 px" in first.stderr
    again = radial("train", "--config", str(config), "--out", run, *small)
    assert again.returncode == 2
    assert again.stderr.strip().endswith("use --overwrite or another --out")
    more = radial("train", "--resume", run, "--epochs", "2", "--save-every", "1", "--knn")
    assert more.returncode == 0, more.stderr
    assert "resuming after epoch 1 of 2" in more.stderr
    assert Path(run, "checkpoints", "epoch-002.ckpt").is_file()
    file = str(tmp_path / "backbone.safetensors")
    assert radial("export", run, "--to", file).returncode == 0
    assert Path(file).stat().st_size > 10_000
