"""Configs: checked at once, filled in to fit, and the published values."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
import yaml

from radial.methods import METHODS
from radial.rbf import functions, heads
from radial.training import config as configs
from radial.training.config import DEFAULTS, PAPER, RunConfig, from_dict, power_of_two, resolve


def test_tables_cover_the_registries() -> None:
    assert tuple(DEFAULTS) == tuple(METHODS)
    assert tuple(PAPER) == tuple(METHODS)
    assert heads.HEADS == configs.HEADS
    assert tuple(functions.RADIAL_FUNCTIONS) == configs.RADIAL_FUNCTIONS


def test_importing_the_config_does_not_import_torch() -> None:
    code = "import sys, radial.training.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("method", "row"),
    [  # the paper's settings: hidden, out, optimiser, base lr, weight decay, batch
        ("simclr", (2048, 128, "lars", 0.3, 1e-6, 2048)),
        ("simsiam", (2048, 2048, "sgd", 0.05, 1e-4, 512)),
        ("moco", (2048, 128, "sgd", 0.03, 1e-4, 256)),
        ("byol", (4096, 256, "lars", 0.2, 1.5e-6, 2048)),
        ("swav", (2048, 128, "lars", 0.6, 1e-6, 2048)),
    ],
)
def test_paper_preset(method, row) -> None:
    names = ("hidden_dim", "output_dim", "optimizer", "base_lr", "weight_decay", "batch_size")
    settings = PAPER[method]
    assert tuple(settings[name] for name in names) == row
    config = RunConfig(method=method, **settings)
    assert config.lr == pytest.approx(row[3] * row[5] / 256)
    assert (config.epochs, config.backbone) == (100, "resnet50")


@pytest.mark.parametrize("method", METHODS)
def test_resolved_leaves_nothing_the_method_needs_open(method) -> None:
    config = resolve(RunConfig(method=method), images=14_000, image_size=32, features=128)
    for name in ("hidden_dim", "output_dim", "batch_size", "base_lr", "weight_decay", "optimizer"):
        assert getattr(config, name) is not None
    assert config.batch_size == 256
    assert config.hidden_dim <= 512
    assert resolve(config, images=9, image_size=9, features=9) == config  # nothing left to choose
    if method == "byol":  # 54 steps an epoch
        assert config.momentum == pytest.approx(1 - 30 / 5400)
    if method == "moco":
        assert config.queue_size == 4096
    if method == "swav":
        assert (config.prototypes, config.queue_size) == (128, 0)


def test_small_sets_get_small_batches_and_what_is_given_stays() -> None:
    assert resolve(RunConfig(), images=100, image_size=32, features=64).batch_size == 16
    given = RunConfig(batch_size=10, hidden_dim=7)
    chosen = resolve(given, images=100, image_size=32, features=64)
    assert (chosen.batch_size, chosen.hidden_dim) == (10, 7)
    swav = RunConfig(method="swav", prototypes=512, batch_size=64)
    assert resolve(swav, images=999, image_size=32, features=64).queue_size == 1024


def test_power_of_two() -> None:
    assert [power_of_two(n) for n in (-3, 0, 1, 2, 3, 64, 100)] == [2, 2, 2, 2, 2, 64, 64]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "simclrr"}, "unknown method 'simclrr'; known: 'simclr', 'moco'"),
        ({"head": "rbf"}, "unknown head 'rbf'; known: 'default', 'rbfn'"),
        ({"epochs": 0}, "epochs must be an integer of at least 1, not 0"),
        ({"batch_size": 1}, "batch_size must be an integer of at least 2"),
        ({"base_lr": float("nan")}, "base_lr must be a finite number"),
        ({"num_kernels": 64}, "num_kernels is for RBFN heads, not for default"),
        ({"radial_function": "gauss"}, "unknown radial_function 'gauss'; known: 'gaussian'"),
        ({"head": "linear", "num_layers": 3}, "num_layers is not for the linear head"),
        ({"loggers": "wandb"}, "loggers must be a tuple of names, not 'wandb'"),
        ({"momentum": 0.5}, "momentum is for moco, byol, dino, not simclr"),
        ({"loggers": ("tensorbored",)}, "unknown logger 'tensorbored'"),
        ({"precision": 32}, "unknown precision 32"),
    ],
)
def test_bad_settings(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        RunConfig(**settings)


def test_round_trip_and_unknown_keys() -> None:
    config = RunConfig(loggers=("tensorboard",), base_lr=0.25)
    assert from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="unknown settings epoch; known: "):
        from_dict({"epoch": 3})
    with pytest.raises(FrozenInstanceError):
        config.epochs = 3  # type: ignore[misc]


def test_on_and_off_survive_yaml() -> None:
    assert from_dict(yaml.safe_load("compile: on")).compile == "on"
    assert from_dict(yaml.safe_load("compile: off")).compile == "off"
    written = yaml.safe_dump(RunConfig(compile="on").to_dict())
    assert from_dict(yaml.safe_load(written)).compile == "on"
