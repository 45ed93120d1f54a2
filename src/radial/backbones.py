"""Backbones: images (B, 3, H, W) to features (B, F), by name, with or without trained weights.

Names: torchvision's `resnet18`, `resnet34`, `resnet50`, its other classifiers as
`torchvision:NAME`; lightly's narrow ResNets as `resnet9-w0.25` (depth 9, 18, 34 or 50, then the
width); the CIFAR ResNets of He et al. as `resnet20-cifar` (20, 32, 44, 56 or 110); small ViTs for
small images as `vit-tiny-p4` (nano, tiny or small, then the side of a patch); any timm model as
`timm:NAME`, also `timm:hf-hub:ORG/NAME` and `timm:local-dir:PATH`.
State-dict keys are those of the library a backbone comes from, so exports load there as they are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.checkpoints import SUFFIXES, fitting, load_into, read_file
from radial.checks import check_choice, check_size, needs, one_line
from radial.files import write_atomically

TORCHVISION = ("resnet18", "resnet34", "resnet50")
VITS = {"nano": (96, 6, 3), "tiny": (192, 12, 3), "small": (384, 12, 6)}  # width, depth, heads
KNOWN = (
    f"{', '.join(TORCHVISION)}, resnet(9|18|34|50)-wWIDTH such as resnet9-w0.25, "
    f"vit-({'|'.join(VITS)})-pPATCH such as vit-tiny-p4, resnet(20|32|44|56|110)-cifar, "
    "torchvision:NAME, timm:NAME"
)
SMALL_STEM = "small images: 3x3 convolution, no pooling"
IMAGENET_STEM = "ImageNet: 7x7 convolution, stride 2, max-pool"
NARROW_STEM = "lightly: 3x3 convolution, no pooling"
TIMM_STEM = "as built by timm, also for small images"
TIMM_PLACES = ("hf-hub:", "local-dir:")  # where timm finds more than its own list
SMALL_BELOW, MIN_SIZE = 64, 16  # pixels


@dataclass(frozen=True, kw_only=True)
class BackboneInfo:
    name: str
    image_size: int
    feature_dim: int
    stem: str


class NarrowResNet(nn.Module):
    """lightly's ResNet, under its own keys, pooling the whole map: equal at 32 px, any size fits.

    lightly averages windows of 4×4, which gives one vector only where the last map is 4×4.
    """

    def __init__(self, resnet: Any) -> None:
        super().__init__()
        self.conv1, self.bn1 = resnet.conv1, resnet.bn1
        self.layer1, self.layer2 = resnet.layer1, resnet.layer2
        self.layer3, self.layer4 = resnet.layer3, resnet.layer4

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.bn1(self.conv1(images)))
        maps = self.layer4(self.layer3(self.layer2(self.layer1(maps))))
        return F.avg_pool2d(maps, [maps.shape[2], maps.shape[3]]).flatten(1)


class StridedPointwise(nn.Conv2d):
    """A 1×1 convolution with a stride that first picks the pixels it reads.

    The same function under the same keys. In channels-last, oneDNN (torch 2.14.1) writes beyond its
    buffers in the backward pass of the strided form where the input has fewer channels than the
    processor's vectors hold: 8 with AVX2, 16 with AVX-512.
    """

    def forward(self, maps: Tensor) -> Tensor:
        # a slice would do, but its gradient leaves channels-last, and what adds to it crawls
        picked = F.avg_pool2d(maps, 1, self.stride)
        return F.conv2d(picked, self.weight, self.bias, groups=self.groups)


def channels_last(network: nn.Module) -> bool:
    """Store the weights of convolutions channels-last, where that is safe; whether it was done.

    Convolutions follow the layout of their weights, so that inputs need no care: a step of a
    ResNet takes 0.7 to 0.9 of its time (`benchmarks/training.py`). The network is changed in place,
    its state dict keeps keys, shapes and values.

    >>> channels_last(nn.Conv2d(3, 8, 3)), channels_last(nn.Conv2d(4, 8, 1, stride=2))
    (True, False)
    """
    if any(_corrupts(conv) for conv in network.modules() if isinstance(conv, nn.Conv2d)):
        return False
    network.to(memory_format=torch.channels_last)
    return True


def _corrupts(conv: nn.Conv2d) -> bool:
    """Whether it is a convolution of the kind that `StridedPointwise` stands in for."""
    narrow = conv.in_channels // conv.groups < 32  # twice the widest vectors there are
    strided = conv.kernel_size == (1, 1) and max(conv.stride) > 1
    return narrow and strided and not isinstance(conv, StridedPointwise)


class CifarResNet(nn.Module):
    """He et al.'s ResNet for CIFAR: three stages of 16, 32, 64 channels, shortcuts without weights.

    Where the map halves, the shortcut takes every second pixel and pads channels with zeros on
    both sides (their option A), as in the files commonly passed on. (B, 3, H, W) to (B, 64).
    """

    def __init__(self, depth: int) -> None:
        from torchvision.models.resnet import BasicBlock

        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        before = 16
        for stage, width in enumerate((16, 32, 64), start=1):
            blocks = []
            for number in range((depth - 2) // 6):
                stride = 2 if stage > 1 and number == 0 else 1
                blocks.append(BasicBlock(before, width, stride, _padded if stride > 1 else None))
                before = width
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.bn1(self.conv1(images)))
        for stage in (1, 2, 3):
            maps = self.get_submodule(f"layer{stage}")(maps)
        return maps.mean((2, 3))


def _padded(maps: Tensor) -> Tensor:
    channels = maps.shape[1] // 2
    return F.pad(maps[:, :, ::2, ::2], (0, 0, 0, 0, channels, channels))


def build_backbone(
    name: str = "resnet18",
    *,
    image_size: int = 224,
    weights: str | Path | Mapping[str, Tensor] | None = None,
    stem: str | None = None,
) -> tuple[nn.Module, BackboneInfo]:
    """Build a backbone in training mode; random unless `weights` are given.

    `weights` is "DEFAULT", a name torchvision knows such as "IMAGENET1K_V2", a file, or tensors by
    name. Of the latter, prefixes such as `module.encoder_q.` and classifiers are dropped; where
    several networks fit (online and momentum), the first is taken. torchvision ResNets for images
    below 64 px get the small-image stem, unless named weights, which need their own stem, are
    given or `stem` is that of another `BackboneInfo`.

    >>> backbone, info = build_backbone("resnet9-w0.125", image_size=32)
    >>> info.feature_dim, tuple(backbone(torch.zeros(2, 3, 32, 32)).shape)
    (64, (2, 64))
    """
    check_size("image_size", image_size, MIN_SIZE)
    given = isinstance(weights, Mapping)
    from_file = not given and weights is not None and str(weights).lower().endswith(SUFFIXES)
    named = None if weights is None or given or from_file else str(weights)
    if stem is None:
        stem = SMALL_STEM if image_size < SMALL_BELOW and named is None else IMAGENET_STEM
    module, stem = _build(name, image_size, stem, named)
    if given or from_file:
        found = weights if isinstance(weights, Mapping) else read_file(str(weights)).tensors
        what = "what was given" if given else str(weights)
        complaint = f"{what} does not fit {name} ({stem})"
        load_into(module, fitting(found, module.state_dict()), complaint)
    dim = _feature_dim(module, name, image_size)
    return module, BackboneInfo(name=name, image_size=image_size, feature_dim=dim, stem=stem)


def save_backbone(
    module: nn.Module,
    path: Path | str,
    info: BackboneInfo,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write safetensors, with the info and more metadata (strings, such as JSON) in its header."""
    header = {key: str(value) for key, value in asdict(info).items()}
    for key, value in (metadata or {}).items():
        if key in header or not isinstance(value, str):
            raise ValueError(
                f"metadata must be strings under keys other than {', '.join(header)},"
                f" not {key!r}: {value!r}"
            )
    from safetensors.torch import save

    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    tensors = {
        key: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, value in module.state_dict().items()
    }
    write_atomically(_safetensors(path), save(tensors, {**header, **(metadata or {})}))


def load_backbone(path: Path | str) -> tuple[nn.Module, dict[str, str]]:
    """Rebuild what `save_backbone` wrote, in training mode, with all of its metadata."""
    file = read_file(_safetensors(path))
    metadata = dict(file.metadata)
    absent = [key for key in ("name", "image_size", "stem") if key not in metadata]
    if absent or not metadata["image_size"].isdecimal():
        what = f"no {', '.join(absent)}" if absent else f"image_size {metadata['image_size']!r}"
        raise ValueError(f"{path} was not written by save_backbone: {what} in its metadata")
    check_choice("stem", metadata["stem"], (SMALL_STEM, IMAGENET_STEM, NARROW_STEM, TIMM_STEM))
    module, _ = _build(metadata["name"], int(metadata["image_size"]), metadata["stem"], None)
    load_into(module, file.tensors, f"{path} does not fit {metadata['name']}")
    return module, metadata


def is_export(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata of a file are those that `save_backbone` writes."""
    told = {"name", "stem", "image_size"} <= metadata.keys()
    return told and metadata["image_size"].isdecimal()


def _safetensors(path: Path | str) -> Path:
    if Path(path).suffix != ".safetensors":
        raise ValueError(f"a saved backbone is a .safetensors file, not {str(path)!r}")
    return Path(path)


def _build(name: str, image_size: int, stem: str, weights: str | None) -> tuple[nn.Module, str]:
    if name.startswith("timm:"):
        return _timm(name.removeprefix("timm:"), image_size, weights), TIMM_STEM
    if narrow := re.fullmatch(r"resnet(9|18|34|50)-w(\d+(?:\.\d+)?)", name):
        if weights is not None:
            raise _unknown_weights(name, weights, ())
        return _narrow(name, narrow[1], float(narrow[2])), NARROW_STEM
    if vit := re.fullmatch(rf"vit-({'|'.join(VITS)})-p(\d+)", name):
        if weights is not None:
            raise _unknown_weights(name, weights, ())
        return _vit(name, vit[1], int(vit[2]), image_size), TIMM_STEM
    if name in TORCHVISION:
        return _torchvision(name, stem, weights), stem
    if name.startswith("torchvision:"):
        return _classifier(name.removeprefix("torchvision:"), image_size, weights), IMAGENET_STEM
    if cifar := re.fullmatch(r"resnet(20|32|44|56|110)-cifar", name):
        if weights is not None:
            raise _unknown_weights(name, weights, ())
        needs("score", "torchvision")
        return CifarResNet(int(cifar[1])), SMALL_STEM
    raise ValueError(f"unknown backbone {name!r}; known: {KNOWN}")


def _torchvision(name: str, stem: str, weights: str | None) -> nn.Module:
    needs("score", "torchvision")
    from torchvision.models import get_model

    module: nn.Module = get_model(name)
    module.fc = nn.Identity()
    if stem == SMALL_STEM:
        conv = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        module.conv1, module.maxpool = conv, nn.Identity()
    return _with_weights(module, name, weights)


def _classifier(name: str, image_size: int, weights: str | None) -> nn.Module:
    """Any classifier of torchvision's, giving what its last linear layer sees."""
    needs("score", "torchvision")
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise ValueError(f"unknown torchvision model {name!r}; nearest: {_nearest(name, known)}")
    options: dict[str, Any] = {"image_size": image_size} if name.startswith("vit_") else {}
    if name in ("googlenet", "inception_v3"):  # their own initialisation takes half a minute
        options = {"init_weights": False, "transform_input": weights is not None}
    try:
        module: nn.Module = models.get_model(name, **options)
    except (ValueError, RuntimeError) as error:  # a ViT's patches must tile the image
        raise ValueError(f"torchvision:{name} at {image_size} px: {one_line(error)}") from error
    if name.startswith("squeezenet"):
        module.classifier = nn.AdaptiveAvgPool2d(1)  # its classes are made by a convolution
    else:
        last = [key for key, part in module.named_modules() if isinstance(part, nn.Linear)][-1]
        last = {"googlenet": "fc", "inception_v3": "fc"}.get(name, last)  # others stand behind it
        module.set_submodule(last, nn.Identity())
    return _with_weights(module, name, weights)


def _with_weights(module: nn.Module, name: str, weights: str | None) -> nn.Module:
    from torchvision.models import get_model_weights

    if weights is None:
        return module
    known = get_model_weights(name).__members__
    if weights not in known:
        raise _unknown_weights(name, weights, known)
    try:
        tensors = known[weights].get_state_dict(check_hash=True, weights_only=True)
    except Exception as error:  # the network, the disk, or a damaged file in torch's cache
        raise ValueError(f"cannot get {weights} of {name}: {one_line(error)}") from error
    load_into(module, fitting(tensors, module.state_dict()), f"{weights} does not fit {name}")
    return module


def _narrow(name: str, depth: str, width: float) -> nn.Module:
    needs("train", "lightly")
    from lightly.models.resnet import ResNetGenerator

    if not 1 / 64 <= width <= 16:
        raise ValueError(f"the width of {name!r} must be from {1 / 64} to 16, not {width:g}")
    resnet = NarrowResNet(ResNetGenerator(f"resnet-{depth}", width=width))
    for conv in resnet.modules():
        if isinstance(conv, nn.Conv2d) and _corrupts(conv):
            conv.__class__ = StridedPointwise  # its tensors and settings stay
    return resnet


def _vit(name: str, size: str, patch: int, image_size: int) -> nn.Module:
    """timm's VisionTransformer, whose class token is the feature; other sizes, as of small crops,
    get their positions interpolated.
    """
    needs("timm", "timm")
    from timm.models.vision_transformer import VisionTransformer

    if patch < 1 or image_size % patch:
        raise ValueError(f"{name!r} needs images whose side its patches divide, not {image_size}")
    width, depth, heads = VITS[size]
    module: nn.Module = VisionTransformer(
        img_size=image_size, patch_size=patch, embed_dim=width, depth=depth, num_heads=heads,
        num_classes=0, dynamic_img_size=True,
    )  # fmt: skip
    return module


def _timm(name: str, image_size: int, weights: str | None) -> nn.Module:
    needs("timm", "timm")
    import timm

    if not name.startswith(TIMM_PLACES) and not timm.is_model(name):
        near = _nearest(name, timm.list_models())
        raise ValueError(f"unknown timm model {name!r}; nearest: {near}")
    if weights not in (None, "DEFAULT"):
        raise _unknown_weights(f"timm:{name}", str(weights), ("DEFAULT",))
    options: dict[str, Any] = {"num_classes": 0, "pretrained": weights == "DEFAULT"}
    try:
        try:
            module = timm.create_model(name, img_size=image_size, **options)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            module = timm.create_model(name, **options)
    except Exception as error:  # an unknown tag, a size its patches cannot tile, the network
        raise ValueError(f"cannot build 'timm:{name}': {one_line(error)}") from error
    return module


def _nearest(name: str, known: Iterable[str]) -> str:
    return ", ".join(difflib.get_close_matches(name, list(known), n=5, cutoff=0.4)) or "none"


def _unknown_weights(name: str, weights: str, known: Iterable[str]) -> ValueError:
    choices = ", ".join([*known, f"or a file ending in {', '.join(SUFFIXES)}"])
    return ValueError(f"unknown weights {weights!r} for {name}; known: {choices}")


def _feature_dim(module: nn.Module, name: str, image_size: int) -> int:
    """Features per image, seen by running one; batch statistics stay as they are."""
    module.eval()
    try:
        with torch.no_grad():
            features = module(torch.zeros(1, 3, image_size, image_size))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ValueError(f"{name} does not take {image_size} px: {one_line(error)}") from error
    module.train()
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise ValueError(f"{name} does not give one feature vector an image")
    return features.shape[1]
