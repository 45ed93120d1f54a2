"""Targets: what is read, what is built, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightly.models.modules.heads import SimCLRProjectionHead
from safetensors.torch import save_file
from torch import nn
from torchvision.models import resnet18

from radial import RBFNProjectionHead, load_kernels
from radial.rbf.layer import deepest_rbf_layer
from radial.scoring.targets import IMAGENET, build, find, rebuild_head
from radial.training.rundir import export


def lightning(path: Path, head: nn.Module, prefix: str = "") -> Path:
    """A LightlySSL module's checkpoint: a ResNet-18 without its classifier, and a head."""
    backbone = resnet18()
    backbone.fc = nn.Identity()
    state = {f"{prefix}backbone.{k}": v for k, v in backbone.state_dict().items()}
    state |= {f"{prefix}projection_head.{k}": v for k, v in head.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state, "hyper_parameters": {"lr": 0.1}}, path)
    return path


def test_run(runs) -> None:
    target = find(str(runs["live"]))
    assert (target.kind, target.method, target.head) == ("run", "simclr", "rbfn")
    assert target.verdict == "ok"
    assert target.kernels is not None
    assert target.kernels.centers.shape == (8, 24)
    network = build(target, image_size=16)
    assert not network.backbone.training
    layer = network.rbf_layer
    assert layer is not None
    assert torch.equal(layer.centers, target.kernels.centers)
    features = network.backbone(torch.randn(4, 3, 16, 16))
    assert network.projection_head is not None
    assert network.projection_head(features).shape == (4, 12)
    assert network.preprocess.size == 16
    assert network.preprocess.mean == pytest.approx(target.facts["mean"])


def test_checkpoint_of_a_run_and_exported_backbone_are_the_same_network(runs, tmp_path) -> None:
    export(runs["live"], backbone=tmp_path / "b.safetensors", head=tmp_path / "h.safetensors")
    images = torch.randn(4, 3, 16, 16)
    outputs, statistics = [], []
    for name in (runs["live"], runs["live"] / "last.ckpt", tmp_path / "b.safetensors"):
        network = build(find(str(name)), image_size=16)
        outputs.append(network.backbone(images))
        statistics.append(network.preprocess.mean)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert statistics[0] == pytest.approx(statistics[2])
    assert find(str(tmp_path / "b.safetensors")).image_size == 16
    head = find(str(tmp_path / "h.safetensors"))
    whole = find(str(runs["live"]))
    assert torch.equal(head.kernels.centers, whole.kernels.centers)


@pytest.mark.parametrize("prefix", ["", "model.", "module."])
def test_foreign_checkpoint_with_a_head_of_radial(tmp_path, prefix) -> None:
    head = RBFNProjectionHead(512, 32, 16, 3, num_kernels=8).eval()
    with torch.no_grad():  # a trained head's BatchNorm has statistics
        head.train()(torch.randn(64, 512))
        head.eval()
    target = find(str(lightning(tmp_path / "run.ckpt", head, prefix)))
    assert target.kernels is not None
    assert target.kernels.name.endswith("projection_head.layers.5")  # the deepest
    network = build(target, image_size=64)
    assert network.name == "resnet18"
    assert network.preprocess.mean == IMAGENET[0]
    x = torch.randn(8, 512)
    assert torch.allclose(network.projection_head(x), head(x), atol=1e-6)
    assert any("not normalised, Euclidean, with residual" in note for note in network.notes)


def test_foreign_checkpoint_with_the_published_head(tmp_path) -> None:
    head = RBFNProjectionHead.paper(512, 32, 16, 2, num_kernels=8)
    target = find(str(lightning(tmp_path / "run.ckpt", head)))
    network = build(target, image_size=64, normalize=True)
    x = 0.1 * torch.randn(8, 512)
    assert torch.allclose(network.projection_head(x), head(x), atol=1e-6)
    assert any("without residual path" in note for note in network.notes)


def test_foreign_checkpoint_with_lightly_head(tmp_path) -> None:
    head = SimCLRProjectionHead(512, 64, 16).eval()
    target = find(str(lightning(tmp_path / "run.ckpt", head)))
    assert target.kernels is None
    network = build(target, image_size=64)
    x = torch.randn(8, 512)
    assert torch.equal(network.projection_head(x), head(x))
    assert network.rbf_layer is None


def test_momentum_copies_are_not_taken_for_the_head(tmp_path) -> None:
    online, slow = RBFNProjectionHead(512, 16, 8, 2), RBFNProjectionHead(512, 16, 8, 2)
    state = {f"projection_head_momentum.{k}": v for k, v in slow.state_dict().items()}
    state |= {f"projection_head.{k}": v for k, v in online.state_dict().items()}
    head, _ = rebuild_head(state, 512)
    assert torch.equal(
        deepest_rbf_layer(head).centers, online.state_dict()["layers.2.kernels_centers"]
    )


def test_the_momentum_copy_is_not_taken_for_the_backbone(tmp_path) -> None:
    online, slow = resnet18(), resnet18()
    state = {f"encoder_k.{k}": v for k, v in slow.state_dict().items()}  # sorts before encoder_q
    state |= {f"encoder_q.{k}": v for k, v in online.state_dict().items()}
    save_file(state, tmp_path / "moco.safetensors")
    network = build(find(str(tmp_path / "moco.safetensors")), image_size=64)
    assert torch.equal(network.backbone.conv1.weight, online.conv1.weight)
    assert any("momentum copy" in note for note in network.notes)


@pytest.mark.parametrize("image_size", [32, 64])
def test_lightly_examples_hold_a_sequential(image_size, tmp_path) -> None:
    """Their keys are backbone.0.weight and so on; the stem is the file's, not the images'."""
    whole = resnet18()
    backbone = nn.Sequential(*list(whole.children())[:-1]).eval()
    torch.save({f"backbone.{k}": v for k, v in backbone.state_dict().items()}, tmp_path / "x.bin")
    network = build(find(str(tmp_path / "x.bin")), image_size=image_size)
    images = torch.randn(2, 3, image_size, image_size)
    assert torch.allclose(network.backbone(images), backbone(images).flatten(1), atol=1e-5)


def test_a_head_with_more_than_layers_is_left_out() -> None:
    state = {"projection_head.layers.0.weight": torch.zeros(4, 8)}
    state |= {"projection_head.layers.0.bias": torch.zeros(4)}
    assert rebuild_head(state, 8)[0] is not None
    for more in ("projection_head.last_layer.weight", "projection_head.layers.9999999999.weight"):
        head, notes = rebuild_head(state | {more: torch.zeros(2, 4)}, 8)
        assert head is None
        assert "more than numbered layers" in notes[0]


def test_head_in_another_layout_is_left_out_and_said(tmp_path) -> None:
    backbone = resnet18()
    backbone.fc = nn.Identity()
    state = {f"backbone.{k}": v for k, v in backbone.state_dict().items()}
    state |= {"mlp.0.weight": torch.zeros(8, 512)}
    torch.save(state, tmp_path / "x.pt")
    network = build(find(str(tmp_path / "x.pt")), image_size=64)
    assert network.projection_head is None
    assert "backbone only" in network.notes[0]


def test_models_by_name() -> None:
    network = build(find("torchvision:resnet18@none"), image_size=64)
    assert (network.name, network.preprocess.mean) == ("resnet18", None)
    again = build(find("resnet18@none"), image_size=64)
    assert torch.equal(network.backbone.conv1.weight, again.backbone.conv1.weight)
    vit = build(find("timm:vit_tiny_patch16_224@none"), image_size=32)
    assert vit.backbone(torch.zeros(1, 3, 32, 32)).shape == (1, 192)


class Evil:
    def __reduce__(self):
        return print, ("executed",)


def malicious(path: Path) -> None:
    torch.save({"state_dict": Evil()}, path)


def half_a_network(path: Path) -> None:
    whole = resnet18().state_dict()
    torch.save({k: v for k, v in whole.items() if not k.startswith("layer4")}, path)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("gone.ckpt", lambda path: None, "no such target"),
        ("evil.ckpt", malicious, "refused, it holds more than tensors"),
        ("folder", lambda path: path.mkdir(), "is not the directory of a run"),
    ],
)
def test_refused_when_read(name, write, message, tmp_path, capsys) -> None:
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        find(str(tmp_path / name))
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("write", "backbone", "message"),
    [
        (half_a_network, None, "no backbone found in it: expected the keys .* conv1.weight"),
        (half_a_network, "resnet18", "does not fit resnet18.*missing: layer4"),
        (lambda path: torch.save({"fc.weight": torch.zeros(3, 3)}, path), None, "found fc.weight"),
        (half_a_network, "resnet19", "unknown backbone 'resnet19'"),
    ],
)
def test_no_network_is_built_by_halves(write, backbone, message, tmp_path) -> None:
    path = tmp_path / "x.pt"
    write(path)
    with pytest.raises(ValueError, match=message):
        build(find(str(path)), image_size=64, backbone=backbone)


def test_checkpoint_that_does_not_fit_its_config(runs, tmp_path) -> None:
    checkpoint = torch.load(runs["live"] / "last.ckpt", weights_only=True)
    del checkpoint["state_dict"]["method.backbone.conv1.weight"]
    torch.save(checkpoint, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"its backbone does not fit its config.*conv1\.weight"):
        build(find(str(tmp_path / "x.ckpt")), image_size=16)


def test_published_layout_in_safetensors(tmp_path) -> None:
    state = {
        "projection_head.layers.1.kernels_centers": torch.rand(16, 64) * 2 - 1,
        "projection_head.layers.1.log_shapes": torch.zeros(16),
        "projection_head.layers.1.weights": torch.zeros(64, 16),
    }
    save_file(state, tmp_path / "published.safetensors")
    target = find(str(tmp_path / "published.safetensors"))
    assert torch.equal(target.kernels.centers, load_kernels(state)[-1].centers)
