"""What a config builds: the same every time, without Lightning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from radial.training.build import build, build_views, mlflow_uri


def test_heads_are_built_without_lightning() -> None:
    code = "import sys, radial.training.build; print('pytorch_lightning' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_heads_are_calibrated_before_momentum_copies_are_made(config) -> None:
    method = build(config(method="byol", head="rbfn")).method
    plain = build(config(method="byol", head="rbfn", calibrate=False)).method
    for name, value in method.projection_head.state_dict().items():
        assert torch.equal(value, method.target_head.state_dict()[name]), name
    centers = "layers.2.kernels_centers"
    state, other = method.projection_head.state_dict(), plain.projection_head.state_dict()
    assert not torch.equal(state[centers], other[centers])
    predictor = method.prediction_head.state_dict(), plain.prediction_head.state_dict()
    assert not torch.equal(predictor[0][centers], predictor[1][centers])


def test_frozen_kernels_are_those_of_the_calibration(config) -> None:
    learning = build(config(method="byol", head="rbfn")).method
    frozen = build(config(method="byol", head="rbfn-frozen")).method
    for head in ("projection_head", "prediction_head"):
        ours, theirs = getattr(frozen, head).layers[2], getattr(learning, head).layers[2]
        assert torch.equal(ours.kernels_centers, theirs.kernels_centers)
        assert torch.equal(ours.log_shapes, theirs.log_shapes)
        assert not ours.kernels_centers.requires_grad
        assert not ours.log_shapes.requires_grad
        assert ours.weights.requires_grad


def test_building_twice_gives_the_same_weights(config) -> None:
    one, two = (build(config(head="rbfn")).method.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_views_follow_the_config(config) -> None:
    base = build_views(config(method="swav"), 32)
    changed = build_views(config(method="swav", color_strength=0.5, min_scale=0.5), 32)
    assert changed[0].scale == (0.5, 1.0)
    assert changed[-1].scale == base[-1].scale
    assert changed[0].brightness == pytest.approx(0.5 * base[0].brightness)


def test_mlflow_database_has_an_absolute_path(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert mlflow_uri(Path("runs")) == f"sqlite:///{tmp_path.resolve()}/runs/mlflow.db"
