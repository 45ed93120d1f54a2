"""The command as a user types it: one line of error, exit code 2, nothing written."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from radial import __version__
from radial.cli import main
from radial.cli.terminal import described
from radial.scoring.settings import EvalSettings, Settings
from radial.training.config import RunConfig


def radial(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "radial", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom radial.cli import main\nmain(['--help'])\n"
        "print({'torch', 'yaml', 'rich', 'pytorch_lightning'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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
    for option in (
        "--method",
        "--head",
        "--data",
        "--preset",
        "--resume",
        "--config",
        "--[no-]knn",
    ):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "did you mean 'train'?"),
        (["train", "--method", "simclrr"], "unknown method 'simclrr'; known: 'simclr'"),
        (["train", "--epochs", "many"], "--epochs must be a whole number, not 'many'"),
        (["train", "--batch-size", "3.5"], "--batch-size must be a whole number, not '3.5'"),
        (["train", "--base_lr", "fast"], "--base-lr must be a number, not 'fast'"),
        (["train", "--knn=perhaps"], "--knn must be true or false, not 'perhaps'"),
        (["train", "--epoch", "3"], "unknown option '--epoch'; did you mean '--epochs'?"),
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
        (["train", "--monitor", "rankmee"], "unknown score 'rankmee'"),
        (["score"], "nothing to score: give run directories"),
        (["score", "nowhere.ckpt"], "no such target 'nowhere.ckpt'"),
        (["score", "torchvision:resnet18@none"], "has no RBF kernels: without --data"),
        (["score", "x", "--scores", "rank"], "unknown score 'rank'; known: 'sns_paper'"),
        (["score", "x", "--images", "few"], "images"),
        (["score", "x", "--html", "page.html"], "--html draws features: give --data as well"),
        (["score", "x", "--json", "/"], "cannot write /: it is a directory"),
        (
            ["score", "x", "--html", "/dev/null/x", "--data", "digits"],
            "/dev/null is not a directory",
        ),
        (
            ["score", "x", "--scores", "lidar", "--by", "rankme"],
            "--by rankme is not among --scores",
        ),
        (["score", "abcache"], "no such target 'abcache'"),  # not the switch --cache
        (["train", "--precision", "64"], "--precision must be one of 32, bf16, 16, not '64'"),
        (["export", ".", "--to", "x.safetensors"], ". has no checkpoint"),
        (["eval", "x"], "--data is needed"),
        (["eval", "x", "--data", "digits"], "no such target 'x'"),
        (["eval", "x", "--data", "digits", "--protocol", "linear"], "unknown protocol 'linear'"),
        (["eval", "resnet19@none", "--data", "digits"], "unknown backbone 'resnet19'"),
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


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--save_every", "3"], "save_every", 3),
        (["--save-every=3"], "save_every", 3),
        (["--knn"], "knn", True),
        (["--calibrate", "False"], "calibrate", False),
        (["--no-calibrate"], "calibrate", False),
        (["--no_calibrate"], "calibrate", False),
        (["--loggers", "tensorboard,wandb"], "loggers", ["tensorboard", "wandb"]),
        (["--monitor=[rankme, lidar@backbone]"], "monitor", ["rankme", "lidar@backbone"]),
        (["--base-lr", "1e-3"], "base_lr", 0.001),
        (["--precision", "32"], "precision", "32"),
    ],
)
def test_one_way_of_spelling(words, name, value, capsys) -> None:
    assert main(["train", *words, "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)[name] == value


def test_a_file_stands_between_preset_and_command_line(capsys, tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: moco\nepochs: 7\nbase_lr: 1e-3\nprecision: 32\ncompile: on\n")
    words = ["train", "--preset", "paper", "--config", str(file), "--epochs", "9"]
    assert main([*words, "--print-config"]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert (settings["queue_size"], settings["base_lr"], settings["epochs"]) == (4096, 0.001, 9)
    assert (settings["precision"], settings["compile"]) == ("32", "on")


def test_every_option_is_told_and_in_one_group(monkeypatch) -> None:
    for kind in (RunConfig, Settings, EvalSettings):
        names = sorted(field.name for field in fields(kind))
        assert sorted(described(kind)) == names
        monkeypatch.setattr(kind, "__doc__", inspect.cleandoc(kind.__doc__))  # as of Python 3.13
        assert sorted(described(kind)) == names
        if hasattr(kind, "GROUPS"):
            assert sorted(" ".join(kind.GROUPS.values()).split()) == names


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_and_options(shell, capsys) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("open-images", "--kernel-lr-scale", "contact-sheet", "--no-trial"):
        assert word in script


def test_completion_answers_in_bash(tmp_path) -> None:
    done = radial("completion", "bash")
    (tmp_path / "script").write_text(done.stdout)
    words = "COMP_WORDS=(radial study re); COMP_CWORD=2"
    ask = f"source {tmp_path / 'script'}; {words}; _shtab_radial; echo ${{COMPREPLY[@]}}"
    answer = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["report"]


def test_empty_folder(capsys, tmp_path) -> None:
    (tmp_path / "images" / "cats").mkdir(parents=True)
    assert main(["train", "--data", f"folder:{tmp_path / 'images'}"]) == 2
    assert "image" in capsys.readouterr().err


def test_printed_config_is_a_config(capsys, tmp_path) -> None:
    file = tmp_path / "run.yaml"
    assert main(["train", "--method", "moco", "--preset", "paper", "--print-config"]) == 0
    file.write_text(printed := capsys.readouterr().out)
    assert main(["train", "--config", str(file), "--print-config"]) == 0
    assert capsys.readouterr().out == printed


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


def test_score_and_eval_in_a_shell(tmp_path) -> None:
    """From a run to its card and accuracy: files beside result.json, a page, and JSON alone."""
    run, page = str(tmp_path / "run"), str(tmp_path / "card.html")
    environment = os.environ | {"RADIAL_DATA": str(tmp_path / "cache")}
    small = ["--backbone", "resnet9-w0.0625", "--threads", "2", "--head", "rbfn"]
    trained = radial(
        "train", "--epochs", "1", "--out", run, *small, "--monitor", "rankme,sns_width",
        env=environment,
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    assert "rankme@projector" in trained.stderr
    alone = radial("score", run, "--json", "-", env=environment)
    assert alone.returncode == 0, alone.stderr
    (card,) = json.loads(alone.stdout)["cards"]
    assert card["scores"][0]["name"] == "sns_paper"
    options = ["--data", "digits", "--images", "128", "--view-images", "64", "--repeats", "2"]
    both = radial("score", run, "resnet9-w0.0625@none", *options, "--html", page, env=environment)
    assert both.returncode == 0, both.stderr
    assert "untrained" in both.stdout
    assert "view_retrieval@backbone, higher is better" in both.stdout
    assert both.stdout.endswith(f"page: {page}\n")
    assert "Kernel atlas" in Path(page).read_text(encoding="utf-8")
    written = json.loads(Path(run, "scores.json").read_text())
    assert written["data"]["images"] == 128
    judged = radial("eval", run, "--data", "digits", "--protocol", "exact,paper", env=environment)
    assert judged.returncode == 0, judged.stderr
    assert "1,257/180/360" in judged.stdout
    found = json.loads(Path(run, "eval.json").read_text())
    assert set(found["probes"]) == {"exact", "paper"}
    assert found["probes"]["exact"]["accuracy"] > 0.5
    assert found["knn"]["k"] == 20
    more = radial("train", "--resume", run, "--epochs", "2", env=environment)
    assert more.returncode == 0, more.stderr
    assert not Path(run, "scores.json").exists()  # they were of an earlier state
    assert not Path(run, "eval.json").exists()


def test_scores_are_listed(capsys) -> None:
    assert main(["score", "--list"]) == 0
    assert "kernel_information" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["score", "eval"])
def test_help_of_a_command(command, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "--data" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a checkpoint at all"])
def test_damaged_checkpoint_is_one_line(content, capsys, tmp_path) -> None:
    path = tmp_path / "cut.ckpt"
    path.write_bytes(content)
    assert main(["score", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"radial: error: {path} is damaged or no checkpoint")
    assert captured.err.count("\n") == 1


def test_probe_without_labels_or_with_one_class(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path / "cache"))
    images, random = tmp_path / "images", np.random.default_rng(0)
    (images / "only").mkdir(parents=True)
    for i in range(40):
        pixels = random.integers(0, 255, (16, 16, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(images / "only" / f"{i}.png")
    for data, message in ((images, "1 class"), (images / "only", "no labels")):
        assert main(["eval", "resnet9-w0.0625@none", "--data", f"folder:{data}"]) == 2
        assert message in capsys.readouterr().err


def test_a_score_that_is_ranked_by_need_not_be_named_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ["--images", "32", "--view-images", "16", "--repeats", "0", "--no-cache"]
    names = ["resnet9-w0.0625@none", "resnet9-w0.125@none"]
    assert main(["score", *names, "--data", "digits", *few, "--by", "two_nn@backbone"]) == 0
    assert "two_nn@backbone, lower is better" in capsys.readouterr().out
