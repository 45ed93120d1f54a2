"""Scores during training: on held-out images, without changing the run."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from radial.metrics.registry import SCORES
from radial.scoring.score import score
from radial.scoring.settings import Settings
from radial.training.run import resume, train


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=300, file=io.StringIO())


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "monitor.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return torch.load(directory / "last.ckpt", weights_only=True)["state_dict"]


@pytest.fixture
def images(tmp_path: Path) -> str:
    """A folder with splits of its own: 48 images to train on, 40 held out."""
    root, random = tmp_path / "images", np.random.default_rng(0)
    for part, count in (("train", 48), ("val", 40), ("test", 8)):
        for i in range(count):
            path = root / part / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 255, (16, 16, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(path)
    return f"folder:{root}"


def test_every_epoch_without_a_trace_in_the_weights(config, console, tmp_path, images) -> None:
    names = ("rankme", "lidar", "sns_width", "rankme@backbone", "kernel_information")
    common = {"head": "rbfn", "data": images}
    train(config(**common, monitor=names, out=str(tmp_path / "watched")), console=console)
    train(config(**common, out=str(tmp_path / "plain")), console=console)
    found = rows(tmp_path / "watched")
    assert [row["epoch"] for row in found] == ["1", "2", "3"]
    keys = ["rankme@projector", "lidar@projector", "sns_width@kernels", "rankme@backbone",
            "kernel_information@kernels"]  # fmt: skip
    assert set(found[0]) == {"epoch", "step", *keys}
    assert all(float(row["rankme@projector"]) >= 1.0 for row in found)
    assert "rankme@projector" in console.export_text()
    first, second = (weights(tmp_path / name) for name in ("watched", "plain"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_diverged_run_is_watched_to_its_end(config, console, images) -> None:
    settings = config(data=images, head="rbfn", monitor=("rankme", "sns_width"), base_lr=1e6)
    result = train(settings, console=console)
    assert result.verdict == "diverged"
    assert rows(settings.directory)[-1]["rankme@projector"] == "nan"


def test_too_few_held_out_images(config, console, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"monitor needs 16 validation images, .* has 10"):
        train(config(monitor=("rankme",)), console=console)
    assert not (tmp_path / "run").exists()  # said before anything is written


def test_every_n_steps_and_resumed(config, console, images) -> None:
    settings = config(
        data=images, head="default", monitor=("uniformity",), monitor_every=2, monitor_unit="step"
    )
    train(settings, console=console)
    steps = [int(row["step"]) for row in rows(settings.directory)]
    assert steps == [step for step in range(1, 10) if step % 2 == 0]
    before = rows(settings.directory)
    resume(settings.directory, epochs=4, console=console)
    after = rows(settings.directory)
    assert after[: len(before)] == before
    assert [int(row["step"]) for row in after] == [2, 4, 6, 8, 10, 12]


def test_every_score_of_the_registry_can_be_watched(config, console, images) -> None:
    settings = config(data=images, head="rbfn", monitor=tuple(SCORES), epochs=1)
    train(settings, console=console)
    (row,) = rows(settings.directory)
    assert len(row) == 2 + len(SCORES)
    assert all(float(value) == float(value) for name, value in row.items())  # no NaN


def test_last_look_is_what_radial_score_finds(config, console, images) -> None:
    settings = config(data=images, head="rbfn", monitor=("rankme@backbone", "sns_width"), epochs=2)
    train(settings, console=console)
    asked = Settings(
        data=images, part="val", repeats=0, cache=False, scores=("rankme@backbone", "sns_width")
    )
    (card,) = score([str(settings.directory)], asked)
    last = rows(settings.directory)[-1]
    for found in card.scores:
        assert float(last[found.key]) == pytest.approx(found.value, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"monitor": ("rankmee",)}, "unknown score 'rankmee'"),
        ({"monitor": ("sns_width",), "head": "mlp"}, "sns_width needs an RBFN head, not mlp"),
        ({"monitor": "rankme"}, "monitor must be a tuple of names, not 'rankme'"),
        ({"monitor_every": 0}, "monitor_every must be an integer of at least 1"),
        ({"monitor_unit": "minute"}, "unknown monitor_unit 'minute'"),
    ],
)
def test_bad_input(changes, message, config, tmp_path, console) -> None:
    with pytest.raises(ValueError, match=message):
        train(config(**changes), console=console)
    assert not (tmp_path / "run").exists()
