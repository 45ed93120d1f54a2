"""diagnose: each state made on purpose must be called by its name."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from lightly.models.modules.heads import SimCLRProjectionHead
from torch import nn

from radial import RBFLayer, RBFNPredictionHead, RBFNProjectionHead, calibrate, diagnose
from radial.rbf.health import effective_rank


def test_published_head_is_dead_and_the_verdict_says_why_and_what_to_do() -> None:
    report = diagnose(RBFNProjectionHead.paper(num_kernels=64), torch.rand(64, 2048))
    assert report.status == "dead"
    assert report.dead_kernels == 1.0
    assert report.gradient_gain == 0.0
    assert report.verdict.startswith("dead: εr ≈ 3")
    assert report.verdict.endswith("in 2048 dimensions; call calibrate() or use init='scaled'")


def test_published_head_is_dead_behind_batch_norm_too() -> None:
    head = RBFNProjectionHead.paper(num_kernels=64, batch_norm=True)
    assert diagnose(head, torch.rand(64, 2048)).status == "dead"
    assert diagnose(RBFNPredictionHead.paper(num_kernels=64), torch.rand(64, 128)).status == "dead"


def test_default_head_is_alive() -> None:
    report = diagnose(RBFNProjectionHead(512, 512, 64), torch.rand(128, 512))
    assert report.alive
    assert report.verdict == "alive"
    assert report.dead_kernels == 0.0
    assert 0.1 < report.gradient_gain / report.mlp_gradient_gain < 10


def test_saturated_layer() -> None:
    """The published spread of shapes under a softmax: the widest kernel takes every sample."""
    head = RBFNProjectionHead.paper(num_kernels=128, normalize=True)
    report = diagnose(head, torch.rand(64, 2048))
    assert report.status == "saturated"
    assert "layers.3" in report.saturated_layers


def test_saturated_verdict_when_kernels_are_not_dead() -> None:
    centers = torch.cat([torch.zeros(1, 8), 4.0 * torch.ones(1, 8)])
    layer = RBFLayer(8, 2, 4, centers=centers, shapes=torch.full((2,), 0.25))
    report = diagnose(layer, 0.01 * torch.randn(32, 8))
    assert report.status == "saturated"
    assert "one kernel of layer takes all" in report.verdict


def test_constant_output() -> None:
    head = nn.Sequential(nn.Linear(16, 8))
    nn.init.zeros_(head[0].weight)
    nn.init.ones_(head[0].bias)
    report = diagnose(head, torch.randn(32, 16))
    assert report.status == "constant"
    assert report.mean_cosine == pytest.approx(1.0)


def test_collapsed_output() -> None:
    head = nn.Sequential(nn.Linear(16, 8, bias=False))
    with torch.no_grad():
        head[0].weight.copy_(torch.ones(8, 1) @ torch.randn(1, 16))
    assert diagnose(head, torch.randn(32, 16)).status == "collapsed"


def test_two_dimensions_are_no_collapse() -> None:
    assert diagnose(nn.Linear(16, 2), torch.randn(64, 16)).status == "alive"


def test_broken_output() -> None:
    layer = RBFLayer(16, 4, 8)
    nn.init.constant_(layer.weights, torch.inf)
    assert diagnose(layer, torch.randn(32, 16)).status == "broken"


def test_partly_dead_is_said() -> None:
    shapes = torch.tensor([0.1] * 7 + [1e3])
    report = diagnose(RBFLayer(16, 8, 8, shapes=shapes), torch.randn(32, 16))
    assert report.alive
    assert report.layers[0].dead_kernels == pytest.approx(1 / 8)
    assert report.verdict == "alive, but 12% of the kernels of layer are dead; call calibrate()"


def test_mlp_head_is_its_own_twin_in_kind() -> None:
    report = diagnose(SimCLRProjectionHead(64, 64, 32), torch.randn(128, 64))
    assert report.alive
    assert report.layers == ()
    assert report.gradient_gain == pytest.approx(report.mlp_gradient_gain, rel=0.3)


def test_head_and_random_state_are_left_unchanged() -> None:
    head, x = RBFNProjectionHead(64, 64, 32, num_kernels=8), torch.randn(32, 64)
    before, state = copy.deepcopy(head.state_dict()), torch.random.get_rng_state()
    diagnose(head, x)
    assert all(torch.equal(before[key], value) for key, value in head.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not head.layers[2]._forward_hooks


def test_report_is_frozen_and_prints_as_a_table() -> None:
    report = diagnose(RBFNProjectionHead(64, 64, 32, num_kernels=8), torch.randn(32, 64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.status = "dead"
    lines = str(report).split("\n")
    assert lines[0] == "alive"
    assert any("gradient gain to the input" in line for line in lines)
    assert any("layers.2: median εr" in line for line in lines)


def test_flat_kernels_are_dead_though_the_residual_path_carries_the_output() -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=8)
    with torch.no_grad():
        head.layers[2].log_shapes.sub_(20.0)
    report = diagnose(head, torch.randn(64, 64))
    assert report.status == "dead"
    assert report.verdict.endswith("call calibrate()")  # it has init="scaled" already


def test_mlp_gain_does_not_depend_on_the_mode() -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=8)
    x = torch.randn(256, 64) + 1000.0
    calibrate(head, x)
    train, evaluation = diagnose(head.train(), x), diagnose(head.eval(), x)
    assert evaluation.mlp_gradient_gain == pytest.approx(train.mlp_gradient_gain)
    assert evaluation.gradient_gain == pytest.approx(train.gradient_gain, rel=0.3)


def test_inside_inference_mode_and_without_parameters() -> None:
    with torch.inference_mode():
        assert diagnose(RBFNProjectionHead(64, 64, 32), torch.randn(64, 64)).alive
    assert diagnose(nn.Identity(), torch.randn(64, 64)).alive


def test_effective_rank_closed_forms() -> None:
    assert effective_rank(torch.eye(7)) == pytest.approx(7.0, rel=1e-5)
    assert effective_rank(torch.ones(5, 3)) == pytest.approx(1.0, rel=1e-3)


def test_bad_features() -> None:
    with pytest.raises(ValueError, match="NaN or inf"):
        diagnose(RBFLayer(4, 2, 2), torch.full((4, 4), torch.inf))
