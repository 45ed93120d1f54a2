"""Reading kernels: the right layer of the right head, and nothing executed."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from radial import load_kernels


def layer(name: str, kernels: int = 3, dimensions: int = 2, value: float = 0.0) -> dict:
    return {
        f"{name}.kernels_centers": torch.full((kernels, dimensions), value),
        f"{name}.log_shapes": torch.full((kernels,), 0.5),
        f"{name}.weights": torch.zeros(4, kernels),
    }


def names(source, **options) -> list[str]:
    return [kernels.name for kernels in load_kernels(source, **options)]


BYOL = {
    "backbone.conv.weight": torch.zeros(1),
    **layer("prediction_head.layers.2"),
    **layer("projection_head.layers.4"),
    **layer("projection_head.layers.1"),
    **layer("projection_head_momentum.layers.4"),
    **layer("projection_head_momentum.layers.1"),
}


def test_values() -> None:
    (kernels,) = load_kernels(layer("layers.1", value=2.0))
    torch.testing.assert_close(kernels.centers, torch.full((3, 2), 2.0))
    torch.testing.assert_close(kernels.shapes, torch.full((3,), math.exp(0.5)))
    torch.testing.assert_close(kernels.widths, 1 / (math.sqrt(2) * kernels.shapes))
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernels.name = "other"


def test_deepest_layer_of_the_projection_head_is_last() -> None:
    assert names(BYOL)[-2:] == ["projection_head.layers.1", "projection_head.layers.4"]
    assert len(names(BYOL)) == 5
    heads = [kernels.head for kernels in load_kernels(BYOL)]
    assert len([1 for a, b in pairwise(heads) if a != b]) == 2  # grouped


def test_layers_stand_in_numeric_order() -> None:
    state = layer("projection_head.layers.10") | layer("projection_head.layers.9")
    assert names(state) == ["projection_head.layers.9", "projection_head.layers.10"]


@pytest.mark.parametrize(
    "copy_name",
    ["teacher_projection_head", "target.projector", "encoder_k.projector", "ema.projection_head",
     "projection_head_momentum", "momentum_encoder.head", "key.proj", "projector_m",
     "projector_slow", "pred_head"],
)  # fmt: skip
def test_momentum_copies_are_never_chosen(copy_name: str) -> None:
    state = layer("projector.layers.1") | layer(f"{copy_name}.layers.7")
    assert names(state)[-1] == "projector.layers.1"


def test_backbone_and_other_heads_do_not_confuse() -> None:
    assert names(layer("model.g.layers.1"))[-1] == "model.g.layers.1"
    state = layer("module.projection_head.layers.1") | layer("module.classifier.layers.1")
    assert names(state)[-1] == "module.projection_head.layers.1"


def test_bare_head_and_bare_layer() -> None:
    assert names(layer("layers.1") | layer("layers.4")) == ["layers.1", "layers.4"]
    bare = {key.removeprefix("x."): value for key, value in layer("x").items()}
    assert names(bare) == [""]


def test_one_head_by_name() -> None:
    assert names(BYOL, head="prediction_head") == ["prediction_head.layers.2"]
    with pytest.raises(ValueError, match=r"no head 'nothing'.*found: 'prediction_head', 'projec"):
        load_kernels(BYOL, head="nothing")


@pytest.mark.parametrize(
    "state",
    [
        layer("projector_a.layers.1") | layer("projector_b.layers.1"),
        layer("prediction_head.layers.2"),
        layer("one.layers.1") | layer("two.layers.1"),
    ],
)
def test_ambiguity_is_an_error_that_lists_what_was_found(state: dict) -> None:
    with pytest.raises(ValueError, match=r"cannot tell which head.*found: '.*pass head="):
        load_kernels(state)


@pytest.mark.parametrize("suffix", [".ckpt", ".pt", ".safetensors"])
def test_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"checkpoint{suffix}"
    if suffix == ".safetensors":
        save_file(BYOL, path)
    else:
        torch.save({"epoch": 3, "state_dict": BYOL} if suffix == ".ckpt" else BYOL, path)
    assert names(path) == names(str(path)) == names(BYOL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a.log_shapes": torch.zeros(2)}, "a: 3 centres but 2 shapes"),
        ({"a.log_shapes": None}, "a.log_shapes must be a tensor with 1 dimensions, not NoneType"),
        ({"a.kernels_centers": torch.zeros(3)}, r"with 2 dimensions, not \(3,\)"),
        ({"a.kernels_centers": torch.full((3, 2), torch.nan)}, "6 of 6 values are NaN"),
    ],
)
def test_damaged_layers(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_kernels(layer("a") | change)


def test_kernels_do_not_follow_the_model_they_were_read_from() -> None:
    state = layer("a")
    (kernels,) = load_kernels(state)
    state["a.kernels_centers"].add_(1.0)
    assert float(kernels.centers.sum()) == 0.0


def test_numbered_layer_names() -> None:
    state = layer("model.rbf10") | layer("model.rbf9")
    assert names(state) == ["model.rbf9", "model.rbf10"]


def test_module_in_place_of_a_state_dict() -> None:
    with pytest.raises(ValueError, match="a path or a state dict, not Linear"):
        load_kernels(torch.nn.Linear(1, 1))


def test_no_rbf_layer() -> None:
    with pytest.raises(ValueError, match=r"no RBF layer.*found layers.0.weight"):
        load_kernels({"layers.0.weight": torch.zeros(2)})
