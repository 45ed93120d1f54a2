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
from radial.training.callbacks import RunMonitor
from radial.training.module import Run
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
    (card,) = score(str(settings.directory), settings=asked)
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


class Cut(Exception):
    """The machine goes down."""


@pytest.fixture
def found(monkeypatch):
    """Prescribe the score of every epoch, by the step at which it is looked at."""

    def prescribe(by_step: dict[int, float]) -> None:
        look = RunMonitor._received

        def received(self, trainer, module, values):
            look(self, trainer, module, dict.fromkeys(values, by_step[trainer.global_step]))

        monkeypatch.setattr(RunMonitor, "_received", received)

    return prescribe


CURVE = {3: 0.2, 6: 0.5, 9: 0.4, 12: 0.5, 15: 0.3, 18: 0.9, 21: 0.1}  # epoch 2 is best, then 6


@pytest.mark.parametrize("cut_at", [None, 4, 7, 10])
def test_best_and_patience_survive_a_power_cut(
    cut_at, config, console, images, found, monkeypatch
) -> None:
    found(CURVE)
    settings = config(data=images, keep="best", patience=3, epochs=6, save_every=1)
    if cut_at is not None:
        step = Run.training_step

        def cut(self, batch, number):
            if self.global_step == cut_at:
                raise Cut
            return step(self, batch, number)

        with monkeypatch.context() as patched:
            patched.setattr(Run, "training_step", cut)
            with pytest.raises(Cut):
                train(settings, console=console)
        result = resume(settings.directory, console=console)
    else:
        result = train(settings, console=console)
    assert result.epochs == 5  # the third look without a rise
    assert not result.stopped
    assert result.best == {"score": "view_retrieval@backbone", "value": 0.5, "epoch": 2, "step": 6}
    best = torch.load(settings.directory / "best.ckpt", weights_only=True)
    assert best["global_step"] == 6
    kept = settings.directory / "checkpoints" / "epoch-002.ckpt"
    for name, value in torch.load(kept, weights_only=True)["state_dict"].items():
        assert torch.equal(best["state_dict"][name], value)
    assert resume(settings.directory, console=console) == result  # complete
    further = resume(settings.directory, epochs=7, console=console)  # it rises once more
    assert (further.epochs, further.best["epoch"]) == (7, 6)


def test_best_of_a_score_that_is_better_when_lower(config, console, images, found) -> None:
    found({step: -value for step, value in CURVE.items()})
    settings = config(data=images, monitor=("uniformity", "rankme"), keep="best", epochs=3)
    result = train(settings, console=console)
    assert (result.best["score"], result.best["epoch"]) == ("uniformity@projector", 2)


def test_best_between_two_epochs(config, console, images, found) -> None:
    found({2: 0.1, 4: 0.7, 6: 0.2, 8: 0.3})
    unit = {"monitor_unit": "step", "monitor_every": 2}
    settings = config(data=images, keep="best", patience=2, **unit)
    result = train(settings, console=console)
    assert result.best["step"] == 4
    assert torch.load(settings.directory / "best.ckpt", weights_only=True)["global_step"] == 4
    assert result.epochs == 3  # patience ends with the epoch, not within


def test_each_look_is_reported_and_can_end_the_run(config, console, images) -> None:
    rows_seen = []

    def report(row) -> bool:
        rows_seen.append(row)
        return row["epoch"] == 2

    settings = config(data=images, monitor=("view_retrieval", "rankme@backbone"), epochs=4)
    result = train(settings, console=console, report=report)
    assert result.epochs == 2
    assert not result.stopped
    written = rows(settings.directory)
    assert [{name: str(value) for name, value in row.items()} for row in rows_seen] == written
    assert not (settings.directory / "best.ckpt").exists()


def test_values_reach_loggers_under_names_they_take(config, console, images) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    names = ("view_retrieval", "view_retrieval@projector")
    settings = config(data=images, monitor=names, loggers=("tensorboard",), epochs=2)
    train(settings, console=console)
    events = EventAccumulator(str(settings.directory / "tensorboard"))
    events.Reload()
    for name, key in zip(
        ("view_retrieval", "view_retrieval_projector"),
        ("view_retrieval@backbone", "view_retrieval@projector"),
    ):
        logged = events.Scalars(name)
        assert [event.step for event in logged] == [3, 6]
        told = [float(row[key]) for row in rows(settings.directory)]
        assert [event.value for event in logged] == pytest.approx(told, rel=1e-6)
