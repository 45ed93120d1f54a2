"""Backbones against the libraries they come from, and every form of weights file."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError

import pytest
import safetensors.torch
import torch
import torchvision
from lightly.models import ResNetGenerator
from torch import Tensor, nn

from radial.backbones import (
    IMAGENET_STEM,
    NARROW_STEM,
    SMALL_STEM,
    TIMM_STEM,
    StridedPointwise,
    build_backbone,
    channels_last,
    load_backbone,
    save_backbone,
)

NARROW = "resnet9-w0.125"


def images(size: int) -> Tensor:
    return torch.rand(2, 3, size, size)


@torch.no_grad()
def features(module: nn.Module, x: Tensor) -> Tensor:
    return module.eval()(x)


def settle(module: nn.Module, size: int) -> nn.Module:
    """Move the batch statistics from where they start, so that losing them would show."""
    module.train()(images(size))
    return module


def plain_resnet18(*, small: bool) -> nn.Module:
    resnet = torchvision.models.resnet18()
    resnet.fc = nn.Identity()
    if small:
        resnet.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        resnet.maxpool = nn.Identity()
    return resnet


def one_line(error: pytest.ExceptionInfo[ValueError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize(("size", "stem"), [(32, SMALL_STEM), (64, IMAGENET_STEM)])
def test_an_export_is_torchvisions_own_resnet(tmp_path: Path, size: int, stem: str) -> None:
    backbone, info = build_backbone("resnet18", image_size=size)
    assert (info.stem, info.feature_dim, info.image_size) == (stem, 512, size)
    assert backbone.training
    save_backbone(settle(backbone, size), tmp_path / "b.safetensors", info)
    resnet = plain_resnet18(small=stem == SMALL_STEM)
    resnet.load_state_dict(safetensors.torch.load_file(tmp_path / "b.safetensors"), strict=True)
    x = images(size)
    assert torch.equal(features(resnet, x), features(backbone, x))


@pytest.mark.parametrize(("name", "dim"), [("resnet34", 512), ("resnet50", 2048)])
def test_deeper_resnets(name: str, dim: int) -> None:
    backbone, info = build_backbone(name, image_size=32)
    assert info.feature_dim == dim
    assert features(backbone, images(32)).shape == (2, dim)


def test_the_small_stem_starts_as_torchvisions_convolutions_do() -> None:
    conv = build_backbone(image_size=32)[0].conv1.weight
    assert conv.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)  # fan-out, ReLU


@pytest.mark.parametrize("name", [NARROW, "resnet18-w0.0625", "resnet50-w0.25", "resnet9-w1"])
def test_narrow_resnets_equal_lightlys_at_32_px(name: str) -> None:
    depth, width = name.removeprefix("resnet").split("-w")
    theirs = ResNetGenerator(f"resnet-{depth}", width=float(width))
    theirs.linear = nn.Identity()
    ours, info = build_backbone(name, image_size=32)
    theirs.load_state_dict(settle(ours, 32).state_dict(), strict=True)
    x = images(32)
    assert torch.equal(features(ours, x), features(theirs, x))
    assert (info.stem, info.feature_dim) == (NARROW_STEM, features(theirs, x).shape[1])


@pytest.mark.parametrize("built_for", [32, 96])
@pytest.mark.parametrize("name", ["resnet18", NARROW])
def test_every_size_from_16_px_works(name: str, built_for: int) -> None:
    backbone, info = build_backbone(name, image_size=built_for)
    for size in (16, 32, 96):
        backbone.train()(images(size)).sum().backward()
        assert features(backbone, images(size)).shape == (2, info.feature_dim)


def test_building_runs_no_batch_statistics() -> None:
    backbone, _ = build_backbone(NARROW, image_size=32)
    assert backbone.bn1.num_batches_tracked == 0
    assert torch.equal(backbone.bn1.running_mean, torch.zeros(8))


def test_narrow_resnets_copy_and_pickle() -> None:
    backbone, _ = build_backbone(NARROW, image_size=32)
    x = images(32)
    for twin in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
        assert torch.equal(features(twin, x), features(backbone, x))


# saving and loading


@pytest.mark.parametrize(("name", "size"), [("resnet18", 32), ("resnet18", 96), (NARROW, 48)])
def test_loading_gives_back_what_was_saved(tmp_path: Path, name: str, size: int) -> None:
    backbone, info = build_backbone(name, image_size=size)
    settle(backbone, size).to(memory_format=torch.channels_last)
    mean = json.dumps([0.5, 0.5, 0.5])
    save_backbone(backbone, tmp_path / "b.safetensors", info, {"mean": mean})
    loaded, metadata = load_backbone(tmp_path / "b.safetensors")
    assert metadata == {
        "name": name,
        "image_size": str(size),
        "feature_dim": str(info.feature_dim),
        "stem": info.stem,
        "mean": mean,
    }
    assert all(torch.equal(loaded.state_dict()[k], v) for k, v in backbone.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["b.safetensors"]


def test_a_compiled_backbone_exports_plain_keys(tmp_path: Path) -> None:
    backbone, info = build_backbone(NARROW, image_size=32)
    save_backbone(torch.compile(backbone), tmp_path / "b.safetensors", info)
    assert load_backbone(tmp_path / "b.safetensors")[0].state_dict().keys() == (
        backbone.state_dict().keys()
    )


@pytest.mark.parametrize("metadata", [{"name": "mine"}, {"mean": [0.5]}])
def test_metadata_are_strings_under_free_keys(tmp_path: Path, metadata: dict) -> None:
    backbone, info = build_backbone(NARROW, image_size=32)
    with pytest.raises(ValueError, match="metadata must be strings under keys other than name"):
        save_backbone(backbone, tmp_path / "b.safetensors", info, metadata)
    assert not list(tmp_path.iterdir())


def test_loading_is_strict(tmp_path: Path) -> None:
    backbone, info = build_backbone(NARROW, image_size=32)
    path = tmp_path / "b.safetensors"
    header = {"name": NARROW, "image_size": "32", "stem": info.stem}
    for change, match in (
        ({"fc.weight": torch.ones(1)}, "1 unexpected: fc.weight"),
        ({"bn1.weight": torch.ones(9)}, r"bn1.weight \(9,\) for \(8,\)"),
    ):
        safetensors.torch.save_file({**backbone.state_dict(), **change}, path, header)
        with pytest.raises(ValueError, match=match):
            load_backbone(path)
    for change, match in (
        ({"image_size": "large"}, "not written by save_backbone: image_size 'large'"),
        ({"stem": "5x5"}, "unknown stem '5x5'"),
        ({"name": "alexnet"}, "unknown backbone 'alexnet'"),
    ):
        safetensors.torch.save_file(backbone.state_dict(), path, {**header, **change})
        with pytest.raises(ValueError, match=match):
            load_backbone(path)
    safetensors.torch.save_file(backbone.state_dict(), path)
    with pytest.raises(ValueError, match="no name, image_size, stem in its metadata"):
        load_backbone(path)
    with pytest.raises(ValueError, match=r"a \.safetensors file"):
        load_backbone(tmp_path / "b.pt")
    with pytest.raises(ValueError, match=r"a \.safetensors file"):
        save_backbone(backbone, tmp_path / "b.pt", info)


# weights from files


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + key: value for key, value in tensors.items()}


CONTAINERS = {
    "bare": lambda t: t,
    "state_dict": lambda t: {"state_dict": t, "epoch": 3},
    "model": lambda t: {"model": t, "optimizer": {"state": {}}},
    "nested": lambda t: {"state_dict": {"model": t}},
    "lightning": lambda t: {
        "state_dict": prefixed("backbone.", t) | {"head.weight": torch.ones(2)}
    },
    "parallel": lambda t: prefixed("module.", t),
    "moco": lambda t: {
        "state_dict": prefixed("module.encoder_q.", t)
        | prefixed("module.encoder_k.", {key: value * 0 for key, value in t.items()})
        | {"module.encoder_q.fc.0.weight": torch.ones(2), "module.queue": torch.ones(2)}
    },
    "classifier": lambda t: t | {"fc.weight": torch.ones(10, 512), "fc.bias": torch.ones(10)},
    "old": lambda t: {k: v for k, v in t.items() if not k.endswith("num_batches_tracked")},
}


@pytest.mark.parametrize("form", CONTAINERS)
@pytest.mark.parametrize("name", ["resnet18", NARROW])
def test_weights_from_every_container(tmp_path: Path, form: str, name: str) -> None:
    source, _ = build_backbone(name, image_size=32)
    settle(source, 32)
    path = tmp_path / "weights.pth"
    torch.save(CONTAINERS[form](dict(source.state_dict())), path)
    backbone, _ = build_backbone(name, image_size=32, weights=str(path))
    x = images(32)
    assert torch.equal(features(backbone, x), features(source, x))


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "ckpt", "pth.tar"])
def test_weights_from_every_kind_of_file(tmp_path: Path, suffix: str) -> None:
    source, info = build_backbone(NARROW, image_size=32)
    path = tmp_path / f"weights.{suffix}"
    if suffix == "safetensors":
        save_backbone(source, path, info)
    else:
        torch.save(source.state_dict(), path)
    backbone, _ = build_backbone(NARROW, image_size=96, weights=path)
    assert torch.equal(backbone.layer4[0].conv1.weight, source.layer4[0].conv1.weight)


class Trap:
    def __reduce__(self) -> tuple:
        return print, ("run by unpickling",)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (Trap(), "refused, it holds more than tensors"),
        ({"some.weight": torch.ones(1)}, "does not fit .* missing: conv1.weight, .*some.weight"),
    ],
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, content: object, match: str, capsys: pytest.CaptureFixture
) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=match) as error:
        build_backbone(NARROW, image_size=32, weights=tmp_path / "weights.pt")
    one_line(error)
    assert "unpickling" not in capsys.readouterr().out


def test_weights_of_another_stem_or_depth_are_named(tmp_path: Path) -> None:
    torch.save(plain_resnet18(small=False).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"conv1.weight \(64, 3, 7, 7\) for \(64, 3, 3, 3\)") as e:
        build_backbone("resnet18", image_size=32, weights=tmp_path / "weights.pt")
    one_line(e)
    with pytest.raises(ValueError, match=r"80 missing: layer1\.2\.conv1\.weight, .*, …") as e:
        build_backbone("resnet34", weights=tmp_path / "weights.pt")
    one_line(e)


# weights by name


def serve(monkeypatch: pytest.MonkeyPatch, home: Path, answer: object) -> None:
    """Answer torch's downloads, into an empty cache, without a network."""

    def urlopen(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setenv("TORCH_HOME", str(home))
    monkeypatch.setattr("torch.hub.urlopen", urlopen)


class Response(io.BytesIO):
    def info(self) -> object:
        return type("Meta", (), {"get_all": lambda *_: ["1000"]})()


class BrokenResponse(Response):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size) or (_ for _ in ()).throw(ConnectionResetError("reset by peer"))


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (URLError("no network"), "no network"),
        (BrokenResponse(b"half"), "reset by peer"),
        (Response(b"short"), "hash"),
    ],
)
def test_a_failed_download_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object, match: str
) -> None:
    serve(monkeypatch, tmp_path, answer)
    with pytest.raises(ValueError, match=f"cannot get IMAGENET1K_V1 of resnet18: .*{match}") as e:
        build_backbone("resnet18", weights="IMAGENET1K_V1")
    one_line(e)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [32, 224])
def test_named_weights_keep_their_stem_at_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    resnet = torchvision.models.resnet18()
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    url = torchvision.models.ResNet18_Weights.DEFAULT.url
    torch.save(resnet.state_dict(), cache / Path(url).name)  # as though downloaded before
    serve(monkeypatch, tmp_path, URLError("no network"))
    backbone, info = build_backbone("resnet18", image_size=size, weights="DEFAULT")
    assert info.stem == IMAGENET_STEM
    resnet.fc = nn.Identity()
    x = images(size)
    assert torch.equal(features(backbone, x), features(resnet, x))
    save_backbone(backbone, tmp_path / "b.safetensors", info)
    assert torch.equal(
        features(load_backbone(tmp_path / "b.safetensors")[0], x), features(resnet, x)
    )


# names


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        (
            "resnet19",
            {},
            "unknown backbone 'resnet19'; known: resnet18, resnet34, resnet50, resnet",
        ),
        ("", {}, "unknown backbone ''"),
        ("resnet101-w1", {}, "unknown backbone 'resnet101-w1'"),
        ("resnet9-w", {}, "unknown backbone 'resnet9-w'"),
        ("resnet9-w-1", {}, "unknown backbone 'resnet9-w-1'"),
        ("resnet9-w0.01", {}, "width of 'resnet9-w0.01' must be from 0.015625 to 16, not 0.01"),
        ("resnet9-w100", {}, "must be from 0.015625 to 16, not 100"),
        (
            "resnet18",
            {"weights": "V9"},
            "unknown weights 'V9' for resnet18; known: IMAGENET1K_V1, ",
        ),
        ("resnet18", {"weights": "IMAGENET1K_V2"}, "unknown weights 'IMAGENET1K_V2' for resnet18"),
        (NARROW, {"weights": "DEFAULT"}, r"unknown weights 'DEFAULT' .* a file ending in \.safet"),
        ("resnet18", {"image_size": 8}, "image_size must be an integer of at least 16, not 8"),
        (
            "resnet18",
            {"image_size": 32.0},
            "image_size must be an integer of at least 16, not 32.0",
        ),
    ],
)
def test_what_cannot_be_built_is_named(name: str, options: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match) as error:
        build_backbone(name, **options)
    one_line(error)


def test_importing_needs_only_torch() -> None:
    code = (
        "import sys, radial.backbones;"
        "print({'torchvision', 'lightly', 'timm', 'safetensors'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# timm


def test_timm_keys_are_timms(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    backbone, info = build_backbone("timm:resnet18", image_size=32)
    assert (info.stem, info.feature_dim) == (TIMM_STEM, 512)
    save_backbone(settle(backbone, 32), tmp_path / "b.safetensors", info)
    theirs = timm.create_model("resnet18", num_classes=0)
    theirs.load_state_dict(safetensors.torch.load_file(tmp_path / "b.safetensors"), strict=True)
    x = images(32)
    assert torch.equal(features(theirs, x), features(backbone, x))
    assert torch.equal(
        features(load_backbone(tmp_path / "b.safetensors")[0], x), features(theirs, x)
    )


def test_timm_vits_take_the_image_size(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    backbone, info = build_backbone("timm:vit_tiny_patch16_224", image_size=64)
    assert info.feature_dim == 192
    assert backbone.pos_embed.shape[1] == 1 + (64 // 16) ** 2
    save_backbone(backbone, tmp_path / "b.safetensors", info)
    x = images(64)
    loaded, _ = load_backbone(tmp_path / "b.safetensors")
    assert torch.equal(features(loaded, x), features(backbone, x))


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("timm:resnet19", {}, "unknown timm model 'resnet19'; nearest: .*resnet18"),
        ("timm:", {}, "unknown timm model ''; nearest: none"),
        ("timm:resnet18.no_such_tag", {}, "cannot build 'timm:resnet18.no_such_tag'"),
        (
            "timm:resnet18",
            {"weights": "IMAGENET1K_V1"},
            "unknown weights .* known: DEFAULT, or a f",
        ),
        ("timm:inception_v3", {"image_size": 32}, "timm:inception_v3 does not take 32 px"),
    ],
)
def test_what_timm_cannot_build_is_named(name: str, options: dict, match: str) -> None:
    pytest.importorskip("timm")
    with pytest.raises(ValueError, match=match) as error:
        build_backbone(name, **{"image_size": 32, **options})
    one_line(error)


def test_timm_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        ValueError, match=r"timm is not installed: pip install 'radial-ssl\[timm\]'"
    ):
        build_backbone("timm:resnet18")


@pytest.mark.parametrize("name", ["vit-nano-p4", "vit-nano-p8", "vit-tiny-p4"])
def test_small_vits_are_timms_and_take_small_crops(name: str, tmp_path: Path) -> None:
    backbone, info = build_backbone(name, image_size=32)
    backbone.eval()
    images = torch.randn(2, 3, 32, 32)
    assert backbone(images).shape == (2, info.feature_dim)
    assert backbone(torch.randn(2, 3, 16, 16)).shape == (2, info.feature_dim)
    assert "blocks.0.attn.qkv.weight" in backbone.state_dict()
    save_backbone(backbone, tmp_path / "vit.safetensors", info)
    again, _ = load_backbone(tmp_path / "vit.safetensors")
    assert torch.equal(again.eval()(images), backbone(images))


def test_tiny_vit_is_timms_vit_tiny() -> None:
    import timm

    options = {"img_size": 32, "patch_size": 4, "num_classes": 0, "dynamic_img_size": True}
    theirs = timm.create_model("vit_tiny_patch16_224", **options).eval()
    ours, _ = build_backbone("vit-tiny-p4", image_size=32)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours.eval()(images), theirs(images))


def test_patches_must_tile_the_image() -> None:
    with pytest.raises(ValueError, match="whose side its patches divide, not 30"):
        build_backbone("vit-tiny-p4", image_size=30)


@pytest.mark.parametrize("size", [8, 9])
def test_a_strided_pointwise_convolution_picks_the_pixels_it_reads(size: int) -> None:
    plain = nn.Conv2d(6, 5, 1, stride=2).double()
    picking = copy.deepcopy(plain)
    picking.__class__ = StridedPointwise
    images = torch.randn(3, 6, size, size, dtype=torch.float64)
    outputs, gradients = [], []
    for conv in (plain, picking):
        x = images.clone().requires_grad_()
        outputs.append(conv(x))
        gradients.append(torch.autograd.grad(outputs[-1].sin().sum(), (x, conv.weight, conv.bias)))
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_channels_last_is_for_networks_that_it_does_not_break() -> None:
    unsafe = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 1, stride=2))
    assert not channels_last(unsafe)
    assert unsafe[0].weight.is_contiguous()
    assert channels_last(torchvision.models.resnet18())
    network, _ = build_backbone("resnet9-w0.0625", image_size=32)  # 4 channels
    images = torch.randn(2, 3, 32, 32)
    before = network.eval()(images)
    keys = list(network.state_dict())
    assert channels_last(network)
    assert network.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert list(network.state_dict()) == keys
    torch.testing.assert_close(network(images), before)


def test_narrow_networks_survive_their_backward_pass_in_channels_last() -> None:
    """Where the strided convolutions are torch's own, this process dies of a corrupt heap."""
    script = """
import torch
from radial.backbones import build_backbone, channels_last
for size in (16, 32, 64):
    network, _ = build_backbone("resnet9-w0.125", image_size=size)
    assert channels_last(network)
    for _ in range(3):
        network(torch.randn(64, 3, size, size)).sum().backward()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-300:]
