"""Parameter groups: what decays, what does not, and what LARS does with each."""

from __future__ import annotations

import pytest
import torch
from lightly.utils.lars import LARS
from torch import nn

from radial import RBFNProjectionHead, parameter_groups


def model() -> nn.Module:
    return nn.ModuleDict(
        {
            "backbone": nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.LayerNorm(4)),
            "head": RBFNProjectionHead(8, 8, 4, 2, num_kernels=5),
        }
    )


def groups_by_name(module: nn.Module, **options) -> dict[str, dict]:
    names = {id(p): name for name, p in module.named_parameters()}
    groups = parameter_groups(module, lr=0.1, weight_decay=1e-2, **options)
    return {g["name"]: g | {"names": {names[id(p)] for p in g["params"]}} for g in groups}


def test_every_parameter_once_in_the_right_group() -> None:
    groups = groups_by_name(model())
    assert groups["centers"]["names"] == {"head.layers.2.kernels_centers"}
    assert groups["shapes"]["names"] == {"head.layers.2.log_shapes"}
    assert groups["weights"]["names"] == {
        "backbone.0.weight", "head.layers.0.weight", "head.layers.2.weights",
        "head.layers.3.weight",
    }  # fmt: skip
    assert groups["no_decay"]["names"] == {
        "backbone.0.bias", "backbone.1.weight", "backbone.1.bias", "backbone.2.weight",
        "backbone.2.bias", "head.layers.1.weight", "head.layers.1.bias", "head.layers.4.weight",
        "head.layers.4.bias",
    }  # fmt: skip


def test_rates() -> None:
    groups = groups_by_name(model(), kernel_lr_scale=0.5)
    assert groups["centers"]["lr"] == groups["shapes"]["lr"] == pytest.approx(0.05)
    apart = groups_by_name(model(), kernel_lr_scale=100.0, shape_lr_scale=1.0)
    assert (apart["centers"]["lr"], apart["shapes"]["lr"]) == (pytest.approx(10.0), 0.1)
    assert groups["weights"]["lr"] == groups["no_decay"]["lr"] == 0.1
    assert groups["weights"]["weight_decay"] == 1e-2


@pytest.mark.parametrize(
    "optimiser",
    [
        lambda groups: torch.optim.SGD(groups, momentum=0.9),
        lambda groups: torch.optim.AdamW(groups),
        lambda groups: LARS(groups, lr=0.1, momentum=0.9),
    ],
    ids=["sgd", "adamw", "lars"],
)
def test_kernels_do_not_move_without_a_gradient(optimiser) -> None:
    module = model()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    step = optimiser(parameter_groups(module, lr=0.1, weight_decay=0.5))
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(5):
        step.step()
    for name, parameter in module.named_parameters():
        if name.endswith(("kernels_centers", "log_shapes", "bias")):
            assert torch.equal(parameter, before[name]), name


def test_kernels_get_the_trust_scaling_of_lars() -> None:
    module = model()
    layer = module["head"].layers[2]
    before = layer.centers.detach().clone()
    optimiser = LARS(parameter_groups(module, lr=1.0, weight_decay=1e-4), lr=1.0)
    for parameter in module.parameters():
        parameter.grad = 1e4 * torch.randn_like(parameter)
    optimiser.step()
    moved = (layer.centers.detach() - before).norm()
    torch.testing.assert_close(moved, 0.001 * before.norm(), rtol=1e-4, atol=0)


def test_frozen_left_out_shared_once() -> None:
    module = model()
    module["head"].layers[2].kernels_centers.requires_grad_(False)
    module["again"] = module["head"]
    groups = groups_by_name(module)
    assert "centers" not in groups
    assert groups["shapes"]["names"] == {"head.layers.2.log_shapes"}
    assert len(groups["weights"]["params"]) == 4


@pytest.mark.parametrize("name", ["lr", "weight_decay", "kernel_lr_scale", "shape_lr_scale"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_bad_input(name: str, value: float) -> None:
    options = {"lr": 0.1, "weight_decay": 0.0, "kernel_lr_scale": 1.0} | {name: value}
    with pytest.raises(ValueError, match=f"{name} must be a finite number of at least 0"):
        parameter_groups(model(), **options)
