"""Weights come out as plain files that other code loads."""

from __future__ import annotations

import json

import pytest
import torch
import torchvision
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from radial import load_kernels
from radial.backbones import load_backbone
from radial.checkpoints import part
from radial.cli import main
from radial.training.run import train


def test_exported_backbone_is_plain_torchvision(config, tmp_path, capsys) -> None:
    settings = config(backbone="resnet18", head="rbfn", epochs=1)
    train(settings, console=Console(quiet=True))
    backbone, head = tmp_path / "backbone.safetensors", tmp_path / "head.safetensors"
    assert (
        main(["export", str(settings.directory), "--to", str(backbone), "--head", str(head)]) == 0
    )
    assert "resnet18, 512 features" in capsys.readouterr().out

    plain = torchvision.models.resnet18()
    plain.fc, plain.maxpool = nn.Identity(), nn.Identity()
    plain.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)  # the stem for small images
    plain.load_state_dict(load_file(backbone), strict=True)
    trained = torchvision.models.resnet18()
    trained.fc, trained.maxpool, trained.conv1 = nn.Identity(), nn.Identity(), plain.conv1
    state = torch.load(settings.directory / "last.ckpt", weights_only=True)["state_dict"]
    trained.load_state_dict(part(state, "method.backbone."))
    again, metadata = load_backbone(backbone)
    images = torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        features = plain.eval()(images)
        assert torch.equal(features, trained.eval()(images))
        assert torch.equal(features, again.eval()(images))
    assert len(json.loads(metadata["mean"])) == 3
    with safe_open(head, framework="pt") as file:
        assert file.metadata()["head"] == "rbfn"
    kernels = load_kernels(head)[-1]
    assert torch.equal(kernels.centers, load_kernels(settings.directory / "last.ckpt")[-1].centers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--to", "x.safetensors"], "no such checkpoint: nowhere"),
        (["nowhere", "--to", "x.pt"], "weights are written as .safetensors, not 'x.pt'"),
        (["nowhere"], "nothing to export: give --to FILE, --head FILE, or both"),
    ],
)
def test_bad_exports(arguments, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments]) == 2
    error = capsys.readouterr().err
    assert error == f"radial: error: {message}\n"
    assert list(tmp_path.iterdir()) == []
