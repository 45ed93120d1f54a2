"""A dead head is named at once, a collapse while it happens, in every method."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from radial.methods import METHODS, Output
from radial.training.build import build
from radial.training.module import Run
from radial.training.run import train
from radial.training.rundir import export
from radial.verdicts import WINDOW


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=200, file=io.StringIO())


@pytest.mark.parametrize("method", METHODS)
def test_published_head_is_caught_in_every_method(method, config, console) -> None:
    """In 1024 dimensions exp(−(εr)²) is 0: constant output, no gradient."""
    settings = config(method=method, head="rbfn-paper", hidden_dim=1024, epochs=6)
    result = train(settings, console=console)
    assert result.verdict == "dead head"
    assert result.head_health.startswith("dead: εr ≈ ")
    assert result.events[0]["step"] <= WINDOW
    text = console.export_text()
    assert "the projection head cannot learn: dead" in text
    assert text.index("cannot learn") < text.index("epoch 1/6")  # before the first step
    written = json.loads((settings.directory / "result.json").read_text())
    assert written["verdict"] == "dead head"


@pytest.mark.parametrize("head", ["default", "rbfn", "mlp", "linear"])
def test_live_heads_are_not_accused(head, config, console) -> None:
    result = train(config(head=head, epochs=8), console=console)
    assert (result.verdict, result.events) == ("ok", ())
    assert "cannot learn" not in console.export_text()


class Collapsing(nn.Module):
    """Stands for a method; its embeddings become one vector at some step."""

    def __init__(self, method: nn.Module, at: int, loss: float | None = None) -> None:
        super().__init__()
        self.method, self.at, self.loss, self.step = method, at, loss, 0

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("method"), name)

    def forward(self, views, progress=0.0) -> Output:
        output = self.method(views, progress)
        self.step += self.training
        if self.step <= self.at:
            return output
        if self.loss is not None:
            return Output(output.loss * 0 + self.loss, output.embeddings)
        return Output(output.loss, output.embeddings[:1].expand_as(output.embeddings))


@pytest.fixture
def collapsing(monkeypatch):
    def install(at: int, loss: float | None = None) -> None:
        plain = Run.__init__

        def init(self, method, *rest):
            plain(self, Collapsing(method, at, loss), *rest)

        monkeypatch.setattr(Run, "__init__", init)

    return install


def test_collapse_during_training_is_told_and_recorded(config, console, collapsing) -> None:
    collapsing(at=6)
    result = train(config(epochs=8), console=console)
    assert result.verdict == "collapsed"
    assert 6 < result.events[0]["step"] <= 6 + WINDOW
    assert "all embeddings point the same way" in result.reason
    assert f"step {result.events[0]['step']}: collapsed" in console.export_text()
    assert result.epochs == 8
    assert not result.stopped


def test_loss_at_the_value_of_a_constant_output(config, console, collapsing) -> None:
    settings = config(epochs=8)
    constant = build(settings).method.constant_loss(16)
    collapsing(at=3, loss=constant)
    result = train(settings, console=console)
    assert result.verdict == "collapsed"
    assert result.reason == f"the loss sits at {constant:.4g}, that of a constant output"


def test_stops_when_told_to(config, console, collapsing) -> None:
    collapsing(at=6)
    result = train(config(epochs=20, on_collapse="stop"), console=console)
    assert (result.verdict, result.stopped) == ("collapsed", True)
    assert 6 < result.steps <= 6 + WINDOW


@pytest.mark.parametrize("batch", [16, 2])  # stopped at the end of an epoch, or within
def test_what_a_stopped_run_leaves_can_be_exported(batch, config, console) -> None:
    dead = {"head": "rbfn-paper", "hidden_dim": 1024, "on_collapse": "stop", "batch_size": batch}
    result = train(config(epochs=20, **dead), console=console)
    assert (result.verdict, result.stopped) == ("dead head", True)
    file = Path(result.directory, "backbone.safetensors")
    export(result.directory, backbone=file)
    assert file.is_file()


@pytest.mark.parametrize("changes", [{"batch_size": 2}, {"output_dim": 2}])
def test_too_few_samples_or_dimensions_for_a_rank_are_no_collapse(changes, config, console) -> None:
    assert train(config(epochs=1, **changes), console=console).verdict == "ok"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_divergence(loss, config, console, collapsing) -> None:
    collapsing(at=2, loss=loss)
    result = train(config(epochs=2, on_collapse="stop"), console=console)
    assert result.verdict == "diverged"
    assert result.events[0]["step"] == 3
    text = Path(result.directory, "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["train_loss"] is None  # valid JSON


def test_embeddings_on_a_line(config, console, monkeypatch) -> None:
    forward = METHODS["simclr"].forward

    def flat(self, views, progress=0.0):
        output = forward(self, views, progress)
        line = torch.linspace(-1, 1, len(output.embeddings))[:, None] * torch.ones(1, 12)
        return Output(output.loss, line)

    monkeypatch.setattr(METHODS["simclr"], "forward", flat)
    result = train(config(epochs=1), console=console)
    assert result.verdict == "collapsed"
    assert result.reason == "embeddings have effective rank 1.00"
