"""The run directory, its files, and what they say."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console

from radial.rbf.kernels import load_kernels
from radial.training.build import EpochBatches, build
from radial.training.module import Run
from radial.training.run import resume, train
from radial.training.rundir import read_config, read_result

QUIET = Console(quiet=True)


def test_run_directory(config) -> None:
    settings = config(head="rbfn", epochs=4, save_every=2, knn=True)
    result = train(settings, console=QUIET)
    directory = settings.directory
    files = sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())
    assert files == [
        "checkpoints/epoch-002.ckpt",
        "checkpoints/epoch-004.ckpt",
        "config.yaml",
        "data.json.gz",
        "environment.json",
        "last.ckpt",
        "metrics.csv",
        "result.json",
    ]
    assert read_result(directory) == result
    assert result.steps == 4 * 4
    assert result.images == 66
    assert result.knn > 0.8  # two classes told apart by a bright half
    assert result.stem == "lightly: 3x3 convolution, no pooling"
    resolved = read_config(directory)
    assert (resolved.temperature, resolved.optimizer, resolved.base_lr) == (0.5, "sgd", 0.12)
    environment = json.loads((directory / "environment.json").read_text())
    assert environment["torch"] == torch.__version__.split("+")[0]
    assert (environment["seed"], environment["threads"]) == (0, 1)
    checkpoint = torch.load(directory / "last.ckpt", weights_only=True)
    assert checkpoint["radial"]["config"] == yaml.safe_load((directory / "config.yaml").read_text())
    assert load_kernels(directory / "last.ckpt")[-1].centers.shape == (8, 24)


def test_the_written_config_gives_the_same_run(config, tmp_path) -> None:
    settings = config(method="byol", head="rbfn", epochs=1)
    first = train(settings, console=QUIET)
    again = train(
        type(settings)(**read_config(settings.directory).to_dict() | {"out": str(tmp_path / "b")}),
        console=QUIET,
    )
    assert again.train_loss == first.train_loss
    assert again.val_loss == first.val_loss


def test_seeds_differ(config, tmp_path) -> None:
    losses = [
        train(config(seed=seed, epochs=1, out=str(tmp_path / str(seed))), console=QUIET).train_loss
        for seed in (0, 1)
    ]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 128}, "66 training images, fewer than a batch of 128"),
        ({"devices": 3}, "a batch of 16 cannot be divided among 3 devices"),
        ({"method": "moco", "queue_size": 8}, "queue_size must be at least the batch, 16"),
        ({"precision": "16"}, "precision 16 needs a GPU"),
        ({"accelerator": "mps"}, "mps is not available here"),
        ({"backbone": "timm:vit_tiny_patch16_224", "method": "swav", "data": "digits"}, "16 px"),
        ({"backbone": "resnet19"}, "unknown backbone 'resnet19'"),
        ({"data": "folder:/nowhere/at/all"}, "/nowhere/at/all"),
        ({"method": "byol", "num_layers": 3}, "takes no num_layers"),
    ],
)
def test_bad_input_writes_nothing(changes, message, config) -> None:
    if {"precision", "accelerator"} & set(changes) and torch.accelerator.is_available():
        pytest.skip("there is a GPU")
    if changes.get("backbone", "").startswith("timm:"):
        pytest.importorskip("timm", reason="timm is an extra")
    settings = config(**changes)
    with pytest.raises(ValueError, match=message):
        train(settings, console=QUIET)
    assert not settings.directory.exists()


def test_processes_that_are_not_the_runs_ranks(config, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    settings = config()
    with pytest.raises(ValueError, match="started as 2 processes"):
        train(settings, console=QUIET)
    assert not settings.directory.exists()


def test_unreadable_images_are_told_once(folder, config, tmp_path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "top" / "broken.png").write_bytes(b"not an image")
    console = Console(record=True, width=300, file=io.StringIO())
    result = train(config(data=f"folder:{copy}", epochs=1), console=console)
    assert [Path(name).name for name in result.skipped] == ["broken.png"]
    assert console.export_text().count("broken.png") == 1
    settings = config(data=f"folder:{copy}", max_bad_images=0, out=str(tmp_path / "other"))
    with pytest.raises(ValueError, match=r"--max-bad-images.*broken\.png"):
        train(settings, console=QUIET)


def test_a_directory_that_is_no_run_is_left_alone(config, tmp_path) -> None:
    directory = tmp_path / "thesis"
    directory.mkdir()
    (directory / "chapter1.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="directory of a run"):
            train(config(out=str(directory)), overwrite=overwrite, console=QUIET)
    assert [path.name for path in directory.iterdir()] == ["chapter1.tex"]


def test_unlabelled_images_train_but_have_no_knn(folder, config, tmp_path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in folder.rglob("*.png"):
        (flat / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    result = train(config(data=f"folder:{flat}", epochs=1), console=QUIET)
    assert result.verdict == "ok"
    with pytest.raises(ValueError, match="has no labels"):
        train(config(data=f"folder:{flat}", knn=True, out=str(tmp_path / "x")), console=QUIET)


def test_lazily_decoded_images_train_the_same(config, tmp_path, monkeypatch) -> None:
    from radial.training import build

    load = build.load_data
    first = train(config(epochs=1), console=QUIET)
    monkeypatch.setattr(build, "load_data", lambda *a, **k: load(*a, **k, memory_limit=0.0))
    for workers in (0, 2):
        out = str(tmp_path / f"lazy{workers}")
        lazy = train(config(epochs=1, out=out, workers=workers), console=QUIET)
        assert lazy.train_loss == first.train_loss


@pytest.mark.parametrize("precision", ["bf16"])
def test_mixed_precision(precision, config) -> None:
    result = train(config(head="rbfn", precision=precision, epochs=1), console=QUIET)
    assert result.verdict == "ok"


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw"])
def test_optimisers_move_everything_but_momentum_copies(optimizer, config) -> None:
    settings = config(method="byol", head="rbfn", optimizer=optimizer, epochs=1, momentum=1.0)
    before = build(settings).method.state_dict()
    train(settings, console=QUIET)
    state = torch.load(settings.directory / "last.ckpt", weights_only=True)["state_dict"]
    for name, value in build(settings).method.named_parameters():
        moved = not torch.equal(state[f"method.{name}"], before[name])
        assert moved == value.requires_grad, name


def test_tensorboard(config) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is an extra")
    settings = config(epochs=1, loggers=("tensorboard",))
    train(settings, console=QUIET)
    assert list((settings.directory / "tensorboard").glob("events.out.*"))


def test_each_epoch_has_an_order_of_its_own(config, monkeypatch) -> None:
    seen: list[tuple[int, torch.Tensor]] = []
    step = Run.training_step

    def spy(self, batch, number):
        seen.append((self.current_epoch, batch.clone()))
        return step(self, batch, number)

    monkeypatch.setattr(Run, "training_step", spy)
    settings = config(epochs=2)
    train(settings, console=QUIET)
    resume(settings.directory, epochs=3, console=QUIET)
    epochs = [torch.cat([batch for epoch, batch in seen if epoch == e]) for e in range(3)]
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])
    data = build(settings).data.train
    for number, images in enumerate(epochs):
        batches = EpochBatches(len(data), 16, seed=0, shuffle=True)
        batches.set_epoch(number)
        assert torch.equal(images, data.__getitems__([i for batch in batches for i in batch]))
