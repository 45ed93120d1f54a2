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
        (["nowhere"], "nothing to export: give --to FILE, --to hf DIR, or --head FILE"),
        (["nowhere", "--to", "hf"], "--to takes FILE, or hf DIR, not 'hf'"),
        (["--to", "hf", "x"], "which run? radial export RUN --to FILE, or --to hf DIR"),
        (["nowhere", "--to", "hf", "x"], "no such checkpoint: nowhere"),
    ],
)
def test_bad_exports(arguments, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments]) == 2
    error = capsys.readouterr().err
    assert error == f"radial: error: {message}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backbone", ["resnet18", "timm:resnet10t", "vit-nano-p8"])
def test_a_model_folder_loads_by_timm_and_by_radial(backbone, config, tmp_path, capsys) -> None:
    timm = pytest.importorskip("timm")
    settings = config(backbone=backbone, head="rbfn", epochs=1, image_size=64)
    train(settings, console=Console(quiet=True))
    run, out = str(settings.directory), tmp_path / "out" / "model"
    assert main(["eval", run, "--data", settings.data, "--image-size", "64"]) == 0
    few = ["--scores", "rankme,sns_paper", "--image-size", "64"]
    assert main(["score", run, "--data", settings.data, *few]) == 0
    assert main(["export", run, "--to", "hf", str(out), "--license", "apache-2.0"]) == 0
    assert "loads by timm and radial" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "config.json", "model.safetensors", "preprocessor_config.json",
        "projection_head.safetensors",
    ]  # fmt: skip

    theirs = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    ours, _ = load_backbone(out / "model.safetensors")
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(theirs(images), ours.eval()(images))
    mean = json.loads((out / "preprocessor_config.json").read_text())["image_mean"]
    assert theirs.pretrained_cfg["mean"] == pytest.approx(mean)
    assert theirs.num_features == json.loads((out / "config.json").read_text())["num_features"]
    assert load_kernels(out / "projection_head.safetensors")

    card = (out / "README.md").read_text(encoding="utf-8")
    told = json.loads((settings.directory / "scores.json").read_text())["scores"][0]
    assert "license: apache-2.0" in card
    assert f"| {told['name']}@{told['layer']} | {told['value']:.4g} |" in card
    assert f"torch {torch.__version__.split('+')[0]}" in card
    assert main(["export", run, "--to", "hf", str(out)]) == 2  # nothing is replaced
    assert "is there already" in capsys.readouterr().err


def test_a_folder_that_timm_cannot_build_says_so(config, tmp_path, capsys) -> None:
    settings = config(backbone="resnet9-w0.0625", epochs=1)
    train(settings, console=Console(quiet=True))
    out = tmp_path / "model"
    assert main(["export", "--to", "hf", str(out), str(settings.directory)]) == 0
    assert "loads by radial; see" in capsys.readouterr().out
    assert "architecture" not in json.loads((out / "config.json").read_text())
    assert main(["score", str(out / "model.safetensors"), "--data", settings.data,
                 "--scores", "rankme", "--image-size", "16"]) == 0  # fmt: skip
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "timm" not in card
    assert "Not measured: `radial score RUN" in card
