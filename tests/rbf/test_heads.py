"""The heads: structure, published layout, and the contract every head keeps."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from lightly.models.modules import heads as lightly_heads
from lightly.models.modules.heads import ProjectionHead, SimCLRProjectionHead
from safetensors.torch import load_file, save_file
from torch import nn

from radial import RBFLayer, RBFNPredictionHead, RBFNProjectionHead, default_head, load_kernels
from radial.rbf.heads import DEFAULT_HEADS, RBFN_ARMS, build_head
from radial.rbf.heads import HEADS as ARMS
from radial.rbf.heads import ProjectionHead as OurProjectionHead


def kinds(head: ProjectionHead) -> list[str]:
    return [type(stage).__name__ for stage in head.layers]


def test_projection_head_has_the_published_structure() -> None:
    assert kinds(RBFNProjectionHead(32, 16, 8, 3)) == [
        "Linear", "BatchNorm1d", "RBFLayer",
        "Linear", "BatchNorm1d", "RBFLayer",
        "Linear", "BatchNorm1d",
    ]  # fmt: skip
    assert kinds(RBFNProjectionHead(32, 16, 8, 2, batch_norm=False)) == [
        "Linear", "RBFLayer", "Linear",
    ]  # fmt: skip


def test_prediction_head_has_the_published_structure() -> None:
    assert kinds(RBFNPredictionHead(8, 16, 8)) == ["Linear", "BatchNorm1d", "RBFLayer", "Linear"]


def test_paper_head_is_the_published_configuration() -> None:
    head = RBFNProjectionHead.paper(hidden_dim=64, input_dim=32, num_layers=3)
    assert kinds(head) == ["Linear", "RBFLayer", "Linear", "RBFLayer", "Linear"]
    layer = head.layers[1]
    assert (layer.num_kernels, layer.function.name) == (2048, "gaussian")
    assert (layer.normalize, layer.init, layer.residual) == ("published", "paper", False)


def test_published_checkpoint_layout_loads_strictly() -> None:
    """Keys and shapes as the published checkpoints have them, written out by hand."""
    state = {}
    for linear, rbf in ((0, 1), (2, 3)):
        state |= {
            f"layers.{linear}.weight": torch.randn(64, 32 if linear == 0 else 64),
            f"layers.{linear}.bias": torch.randn(64),
            f"layers.{rbf}.weights": torch.randn(64, 16),
            f"layers.{rbf}.kernels_centers": torch.randn(16, 64),
            f"layers.{rbf}.log_shapes": torch.randn(16),
        }
    state |= {"layers.4.weight": torch.randn(8, 64), "layers.4.bias": torch.randn(8)}
    head = RBFNProjectionHead.paper(32, 64, 8, 3, num_kernels=16)
    head.load_state_dict(state, strict=True)
    torch.testing.assert_close(head.layers[3].shapes, state["layers.3.log_shapes"].exp())


def test_leading_arguments_are_those_of_lightly() -> None:
    for ours in (RBFNProjectionHead, RBFNProjectionHead.paper):
        names = list(inspect.signature(ours).parameters)[:4]
        theirs = list(inspect.signature(SimCLRProjectionHead).parameters)[:4]
        assert names == theirs


HEADS = {
    "projection": lambda **o: RBFNProjectionHead(24, 16, 8, **o),
    "prediction": lambda **o: RBFNPredictionHead(24, 16, 8, **o),
    "paper": lambda **o: RBFNProjectionHead.paper(24, 16, 8, num_kernels=8, **o),
}


@pytest.mark.parametrize("name", list(HEADS))
def test_contract(name: str, tmp_path: Path) -> None:
    """Deep-copied, moved, saved, loaded, compiled, under autocast: the same output."""
    head = HEADS[name]().eval()
    assert isinstance(head, OurProjectionHead)
    x = torch.randn(6, 24)
    y = head(x)
    assert y.shape == (6, 8)

    torch.save(head.state_dict(), tmp_path / "head.pt")
    save_file(head.state_dict(), tmp_path / "head.safetensors")
    for state in (
        torch.load(tmp_path / "head.pt", weights_only=True),
        load_file(tmp_path / "head.safetensors"),
    ):
        loaded = HEADS[name]().eval()
        loaded.load_state_dict(state, strict=True)
        torch.testing.assert_close(loaded(x), y)
    copies = [copy.deepcopy(head), pickle.loads(pickle.dumps(head)), copy.deepcopy(head).to("cpu")]
    copies.append(torch.compile(head, fullgraph=True, backend="aot_eager"))
    for other in copies:
        torch.testing.assert_close(other(x), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(head(x).float(), y, rtol=0.1, atol=0.1)


def test_deep_copy_shares_nothing() -> None:
    head = RBFNProjectionHead(24, 16, 8)
    other = copy.deepcopy(head)
    for a, b in zip(head.parameters(), other.parameters()):
        assert a.data_ptr() != b.data_ptr()


def test_options_reach_every_layer() -> None:
    head = RBFNProjectionHead(
        24,
        16,
        8,
        4,
        num_kernels=5,
        radial_function="tps",
        distance="manhattan",
        normalize=True,
        residual=False,
        init="paper",
    )
    layers = [stage for stage in head.layers if isinstance(stage, RBFLayer)]
    assert len(layers) == 3
    for layer in layers:
        assert (layer.num_kernels, layer.function.name, layer.distance, layer.normalize) == (
            5, "tps", "manhattan", True,
        )  # fmt: skip
        assert (layer.residual, layer.init) == (False, "paper")


@pytest.mark.parametrize(("method", "kind"), list(DEFAULT_HEADS))
def test_default_heads_are_lightlys_own(method: str, kind: str) -> None:
    own = getattr(lightly_heads, DEFAULT_HEADS[method, kind].head)
    head = default_head(method, 32, 16, 8, kind=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of lightly's DINO head: weight_norm
        theirs = own(32, 16, 8, **({"batch_norm": True} if method == "dino" else {}))
    assert type(head) is own or method == "dino"
    assert [str(stage) for stage in head.layers] == [str(stage) for stage in theirs.layers]
    assert head(torch.randn(4, 32)).shape == (4, 8)


def test_published_sizes_are_the_defaults() -> None:
    sizes = {key: (spec.hidden_dim, spec.output_dim) for key, spec in DEFAULT_HEADS.items()}
    assert sizes["simclr", "projection"] == (2048, 128)
    assert sizes["simsiam", "projection"] == (2048, 2048)
    assert sizes["moco", "projection"] == (2048, 128)
    assert sizes["byol", "projection"] == (4096, 256)
    assert sizes["swav", "projection"] == (2048, 128)
    assert sizes["byol", "prediction"] == (16 * 256, 256)
    assert sizes["simsiam", "prediction"] == (2048 // 4, 2048)


def test_published_simclr_has_no_batch_norm() -> None:
    published = default_head("simclr", 8, 8, 8, published=True)
    assert not any(isinstance(stage, nn.BatchNorm1d) for stage in published.layers)
    assert any(
        isinstance(stage, nn.BatchNorm1d) for stage in default_head("simclr", 8, 8, 8).layers
    )


def test_depth_where_lightly_has_it() -> None:
    deep = default_head("moco", 8, 8, 8, num_layers=4)
    assert sum(isinstance(stage, nn.Linear) for stage in deep.layers) == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RBFNProjectionHead(0), "input_dim must be an integer of at least 1, not 0"),
        (lambda: RBFNProjectionHead(8, 8, 8, 1), "num_layers must be an integer of at least 2"),
        (lambda: RBFNPredictionHead(8, 8, -1), "output_dim must be an integer of at least 1"),
        (lambda: default_head("mae"), "unknown method 'mae'; known: 'simclr', 'moco', 'byol'"),
        (lambda: default_head("simclr", kind="predict"), "unknown kind 'predict'; known: 'proj"),
        (lambda: default_head("moco", kind="prediction"), "moco has no prediction head.*byol, sim"),
        (lambda: default_head("byol", num_layers=3), "byol's projection head takes no num_layers"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_kernels_of_a_head_can_be_read_back() -> None:
    head = RBFNProjectionHead(24, 16, 8, 3)
    last = load_kernels({f"projection_head.{k}": v for k, v in head.state_dict().items()})[-1]
    assert last.name == "projection_head.layers.5"
    torch.testing.assert_close(last.centers, head.layers[5].centers.detach())


def test_layout_is_that_of_lightly() -> None:
    """Same modules, same keys, and with the same weights the same output."""

    def blocks() -> list:
        return [
            (24, 16, nn.BatchNorm1d(16), nn.ReLU()),
            (16, 16, None, nn.SiLU()),
            (16, 8, None, None),
        ]

    theirs, ours = ProjectionHead(blocks()), OurProjectionHead(blocks())
    assert [str(m) for m in ours.layers] == [str(m) for m in theirs.layers]
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(6, 24)
    assert torch.equal(ours(x), theirs(x))


def test_depth_and_width_are_those_of_the_head_it_replaces() -> None:
    """The swap of the README, measured in the findings: two layers each."""
    theirs, ours = SimCLRProjectionHead(512, 2048, 128), RBFNProjectionHead(512, 2048, 128)
    count = [sum(isinstance(m, nn.Linear) for m in head.modules()) for head in (theirs, ours)]
    assert count == [2, 2]
    extra = sum(p.numel() for p in ours.parameters()) - sum(p.numel() for p in theirs.parameters())
    assert extra == 2 * 128 * 2048 + 128  # centres, weights and shapes of the one RBF layer


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("kind", ["projection", "prediction"])
def test_arms_differ_in_what_they_say(name: str, kind: str) -> None:
    head = build_head(
        name, "byol", 24, 16, 8, kind=kind, **({"num_kernels": 4} if "rbfn" in name else {})
    )
    assert head(torch.randn(6, 24)).shape == (6, 8)
    layers = [m for m in head.modules() if isinstance(m, RBFLayer)]
    assert bool(layers) == name.startswith("rbfn")
    for layer in layers:
        assert layer.residual == (name not in ("rbfn-plain", "rbfn-paper"))
        assert layer.kernels_centers.requires_grad == (name != "rbfn-frozen")
        assert layer.log_shapes.requires_grad == (name != "rbfn-frozen")
        assert layer.weights.requires_grad
        assert (layer.normalize is True) == (name == "rbfn-normalized")


def test_residual_linear_is_an_rbf_layer_without_kernels() -> None:
    """Linear in its input, and as many parameters as centres and weights."""
    head = build_head("residual-linear", "simclr", 24, 16, 8, num_kernels=4)
    block = head.layers[2]
    x, y = torch.randn(2, 6, 16)
    torch.testing.assert_close(block(x + 2 * y), block(x) + 2 * block(y))
    assert sum(p.numel() for p in block.parameters()) == 2 * 4 * 16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", RBFN_ARMS)
def test_half_precision_as_lightlys_heads_have_it(name: str, dtype: torch.dtype) -> None:
    head = build_head(name, "simclr", 24, 16, 8, num_kernels=4).to(dtype)
    x = torch.randn(12, 24)
    y = head(x.to(dtype))
    assert y.dtype == dtype
    y.float().square().mean().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in head.parameters())
    expected = copy.deepcopy(head).float()(x.to(dtype).float())
    assert float(((y.float() - expected).std() / expected.std()).detach()) < 0.1
