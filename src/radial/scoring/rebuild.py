"""Networks of other projects' checkpoints, rebuilt by the names and shapes of their tensors.

What tensors cannot tell is assumed, and said in notes. A network is rebuilt whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radial.backbones import IMAGENET_STEM, SMALL_STEM, build_backbone
from radial.checkpoints import fitting, is_momentum_copy, load_into, part
from radial.checks import needs, one_line
from radial.data.preprocessing import IMAGENET, Preprocess
from radial.scoring.networks import Network
from radial.scoring.projection import Radial, rebuild_head
from radial.scoring.sources import recorded, timm_network

State = Mapping[str, Tensor]
# (bottleneck, blocks a stage, groups, width of a group) → torchvision's name
RESNETS: dict[tuple[bool, tuple[int, ...], int, int], str] = {
    (False, (2, 2, 2, 2), 1, 64): "resnet18",
    (False, (3, 4, 6, 3), 1, 64): "resnet34",
    (True, (3, 4, 6, 3), 1, 64): "resnet50",
    (True, (3, 4, 23, 3), 1, 64): "torchvision:resnet101",
    (True, (3, 8, 36, 3), 1, 64): "torchvision:resnet152",
    (True, (3, 4, 6, 3), 1, 128): "torchvision:wide_resnet50_2",
    (True, (3, 4, 23, 3), 1, 128): "torchvision:wide_resnet101_2",
    (True, (3, 4, 6, 3), 32, 4): "torchvision:resnext50_32x4d",
    (True, (3, 4, 23, 3), 32, 8): "torchvision:resnext101_32x8d",
}
HEADS = {1280: 16, 1408: 16}  # of attention, where they are not 64 wide: ViT-H, ViT-g
MMPRETRAIN = (  # its names of a ViT's parts, and timm's
    (r"patch_embed\.projection\.", "patch_embed.proj."),
    (r"\.ffn\.layers\.0\.0\.", ".mlp.fc1."),
    (r"\.ffn\.layers\.1\.", ".mlp.fc2."),
    (r"(^|\.)layers\.(\d+)\.", r"\1blocks.\2."),
    (r"(\d)\.ln(\d)\.", r"\1.norm\2."),
    (r"(^|\.)ln1\.", r"\1norm."),
)


def rebuild(
    tensors: State,
    path: Path,
    *,
    image_size: int | None = None,
    data_size: int = 224,
    backbone: str | None = None,
    features: str = "auto",
    copy: str = "online",
    radial_function: Radial = "gaussian",
    normalize: bool = False,
) -> Network:
    """The network of a checkpoint of others; see `radial.scoring.targets.build`."""
    complaints: list[str] = []
    for state, note in _copies(tensors, copy, path):
        for named in _readings(state):
            try:
                if backbone:
                    network = _named(named, backbone, image_size, data_size, features)
                else:
                    network = _recognised(named, image_size, data_size, features)
            except ValueError as error:
                complaints.append(str(error))
                continue
            with torch.no_grad():
                width = network.backbone(torch.zeros(1, 3, *(network.preprocess.size,) * 2))
            head, notes = rebuild_head(named, width.shape[1], radial_function, normalize)
            assumed = "normalised with ImageNet's mean and std, which the file does not record"
            notes = (*network.notes, *notes, *note, assumed)
            return replace(network, projection_head=head, notes=notes)
    if backbone or not complaints[0].startswith(UNKNOWN):
        raise ValueError(f"{path}: {complaints[0]}")
    found = ", ".join(list(tensors)[:3])
    raise ValueError(
        f"{path}: no backbone found in it: expected the keys of a ResNet, such as conv1.weight and "
        "layer1.0.conv1.weight, or of a ViT, such as patch_embed.proj.weight and "
        f"blocks.0.attn.qkv.weight, under any prefix; found {found}, …; name its architecture by "
        "--backbone"
    )


def _copies(tensors: State, copy: str, path: Path) -> Iterator[tuple[State, tuple[str, ...]]]:
    """The copy asked for, then, unless it is the momentum copy, what else there is."""
    slow = {key: value for key, value in tensors.items() if is_momentum_copy(key)}
    online = {key: value for key, value in tensors.items() if key not in slow}
    if copy == "momentum":
        if not slow:
            raise ValueError(f"{path} holds no momentum copy: --copy online")
        yield slow, ("the momentum copy was taken",)
        return
    if online:
        left = ("the momentum copy in the file was left aside: --copy momentum takes it",)
        yield online, left if slow else ()
    if slow:
        yield slow, ("the file's only backbone is a momentum copy: it was taken",)


def _readings(state: State) -> Iterator[dict[str, Tensor]]:
    """A file's own keys first, then the same under other projects' names for the same parts."""
    yield dict(state)
    for rewritten in (renamed(state), _from_mmpretrain(state)):
        if rewritten.keys() != state.keys():
            yield rewritten


def _from_mmpretrain(state: State) -> dict[str, Tensor]:
    if not any(key.endswith("patch_embed.projection.weight") for key in state):
        return dict(state)

    def timms(key: str) -> str:
        for ours, theirs in MMPRETRAIN:
            key = re.sub(ours, theirs, key)
        return key

    return {timms(key): value for key, value in state.items()}


def _named(
    state: State, backbone: str, image_size: int | None, data_size: int, features: str
) -> Network:
    """With the architecture that the user names."""
    own = vit_size(state)
    size = image_size or own or data_size
    notes: tuple[str, ...] = ()
    options: dict[str, Any] = {"image_size": size, "stem": _stem(state)}
    try:
        try:
            module, info = build_backbone(backbone, weights=state, **options)
        except ValueError:
            empty = build_backbone(backbone, **options)[0]
            matched = _in_order(state, empty.state_dict())
            if matched is None:
                raise
            module, info = build_backbone(backbone, weights=matched, **options)
            notes = ("its keys have other names: tensors were matched in their order",)
    except ValueError as error:
        if own and own != size and "pos_embed" in str(error):
            line = f"{one_line(error)}; it needs {own} px: --image-size {own}"
            raise ValueError(line) from error
        raise
    how = replace(recorded(module, size), source="assumed")
    return timm_network(module.eval(), info.name, features, how, notes=notes)


def _in_order(state: State, wanted: State) -> dict[str, Tensor] | None:
    """Tensors under the names wanted, where kinds and shapes are the same one by one.

    Projects name the parts of one network differently but write them in the order in which they
    are run. A classifier, at most a weight and a bias, may follow.
    """
    counted = "num_batches_tracked"
    ours = [key for key in wanted if not key.endswith(counted)]
    theirs = [key for key in state if not key.endswith(counted)]
    if not 0 <= len(theirs) - len(ours) <= 2:
        return None
    found = {}
    for own, other in zip(ours, theirs):
        kind, shape = own.rpartition(".")[2], wanted[own].shape
        if other.rpartition(".")[2] != kind or state[other].shape != shape:
            return None
        found[own] = state[other]
    return found


UNKNOWN = "neither a ResNet nor a ViT"


def _recognised(state: State, image_size: int | None, data_size: int, features: str) -> Network:
    """With the architecture that the names and shapes of its tensors tell."""
    if prefix := _prefix(state, "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"):
        return _vit(part(state, prefix[0]), image_size, features)
    found = _prefix(state, "conv1.weight", "layer1.0.conv1.weight")
    if found is None:
        raise ValueError(UNKNOWN)
    whole = part(state, found[0])
    name = _resnet(whole)
    stem = _stem(whole)
    size = image_size or (32 if name.endswith("-cifar") else data_size)
    module, info = build_backbone(name, image_size=size, weights=whole, stem=stem)
    how = Preprocess(size=size, mean=IMAGENET[0], std=IMAGENET[1], source="assumed")
    label = info.name.removeprefix("torchvision:")
    return timm_network(module.eval(), label, features, how)


def _prefix(state: State, *ends: str) -> tuple[str] | None:
    """What stands before the names of a network's parts, in a tuple: it may be nothing."""
    for key in state:
        if key.endswith(ends[0]):
            prefix = key.removesuffix(ends[0])
            if (not prefix or prefix.endswith(".")) and all(prefix + end in state for end in ends):
                return (prefix,)
    return None


def _resnet(state: State) -> str:
    blocks = tuple(_count(state, rf"layer{stage}\.(\d+)\.") for stage in (1, 2, 3, 4))
    deep = "layer1.0.conv3.weight" in state
    if blocks[3] == 0 and len(set(blocks[:3])) == 1 and len(state["conv1.weight"]) == 16:
        return f"resnet{6 * blocks[0] + 2}-cifar"
    if 0 in blocks or "layer1.0.conv2.weight" not in state:
        raise ValueError(UNKNOWN)
    inner = state["layer1.0.conv2.weight"]
    groups = len(inner) // max(1, inner.shape[1]) if inner.dim() == 4 else 0
    width = len(inner) // groups if groups else 0
    name = RESNETS.get((deep, blocks, groups, width))
    if name is None:
        kind = "bottlenecks" if deep else "blocks"
        raise ValueError(
            f"its ResNet of {'/'.join(map(str, blocks))} {kind}, {width} wide, has no name: name "
            "its architecture by --backbone"
        )
    return name


def _count(state: State, pattern: str) -> int:
    places = {int(m[1]) for key in state if (m := re.match(pattern, key))}
    return max(places) + 1 if places else 0


def vit_size(state: State) -> int | None:
    """The side in pixels that a ViT's positions are for, by the shapes of its tensors."""
    prefix = _prefix(state, "patch_embed.proj.weight", "pos_embed")
    if prefix is None:
        return None
    whole = part(state, prefix[0])
    patches, positions = whole["patch_embed.proj.weight"], whole["pos_embed"]
    if patches.dim() != 4 or positions.dim() != 3:
        return None
    count = positions.shape[1]
    extra = next((n for n in range(6) if n < count and isqrt(count - n) ** 2 == count - n), None)
    return None if extra is None else isqrt(count - extra) * patches.shape[-1]


def _vit(state: State, image_size: int | None, features: str) -> Network:
    """A ViT in timm's layout, which DINO's, iBOT's, MAE's, I-JEPA's and MoCo v3's are, too."""
    needs("timm", "timm")
    from timm.layers.mlp import SwiGLUPacked
    from timm.models.vision_transformer import VisionTransformer

    size = vit_size(state)
    if size is None:
        raise ValueError("its ViT has no positions for a square of patches")
    patches, qkv = state["patch_embed.proj.weight"], state["blocks.0.attn.qkv.weight"]
    width, patch = len(patches), patches.shape[-1]
    depth, grid = _count(state, r"blocks\.(\d+)\."), (size // patch) ** 2
    hidden = next((v for k, v in state.items() if k.startswith("blocks.0.mlp.fc1.w")), None)
    if hidden is None or depth > 100 or qkv.shape != (3 * width, width):
        raise ValueError("its ViT has blocks of another kind: name its architecture by --backbone")
    heads = HEADS.get(width, max(1, width // 64))
    cls, registers = "cls_token" in state, state.get("reg_token")
    extra = state["pos_embed"].shape[1] - grid
    pool = "token" if cls else "avg"
    options: dict[str, Any] = {
        "img_size": size, "patch_size": patch, "embed_dim": width, "depth": depth,
        "num_heads": heads, "mlp_ratio": len(hidden) / width, "num_classes": 0,
        "qkv_bias": "blocks.0.attn.qkv.bias" in state, "class_token": cls, "global_pool": pool,
        "no_embed_class": extra == 0, "dynamic_img_size": True,
        "fc_norm": "fc_norm.weight" in state,
        "reg_tokens": 0 if registers is None else registers.shape[1],
        "qk_norm": "blocks.0.attn.q_norm.weight" in state,
        "pre_norm": "norm_pre.weight" in state,
        "init_values": 1.0 if "blocks.0.ls1.gamma" in state else None,
    }  # fmt: skip
    second = state.get("blocks.0.mlp.fc2.weight")
    if second is not None and 2 * second.shape[1] == len(hidden):
        options["mlp_layer"] = SwiGLUPacked
    try:
        module = VisionTransformer(**options)
    except (AssertionError, ValueError, RuntimeError, TypeError) as error:
        raise ValueError(f"its ViT cannot be built: {one_line(error)}") from error
    name = f"ViT {width} wide, {depth} deep, patches of {patch}"
    load_into(module, fitting(state, module.state_dict()), f"it does not fit a {name}")
    side = image_size or size
    if side % patch:
        raise ValueError(f"{side} px: its patches of {patch} do not tile them; it needs {size} px")
    how = Preprocess(size=side, mean=IMAGENET[0], std=IMAGENET[1], source="assumed")
    note = f"{heads} attention heads assumed, which tensors do not tell (--backbone names others)"
    return timm_network(module.eval(), name, features, how, notes=(note,))


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """LightlySSL's examples hold a ResNet's children in a Sequential: 0 is conv1, 4 layer1.

    Those of lightly's own ResNets lose the ReLU behind conv1 there, which is no child: they are
    other networks, and refused as such.

    >>> list(renamed({"backbone.0.weight": torch.zeros(8, 3, 7, 7), "backbone.4.0.bn1.bias": 0}))
    ['backbone.conv1.weight', 'backbone.layer1.0.bn1.bias']
    """
    stems = (k for k, v in state.items() if k.endswith(".0.weight") and v.dim() == 4)
    first = next((key for key in stems if state[key].shape[1] == 3), None)  # of colours
    if first is None:
        return dict(state)
    prefix = first.removesuffix("0.weight")
    names = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
    place = re.compile(rf"{re.escape(prefix)}(\d)\.")
    return {
        place.sub(lambda found: f"{prefix}{names.get(found[1], found[1])}.", key, count=1): value
        for key, value in state.items()
    }


def _stem(state: State) -> str | None:
    """By the size of the first convolution: a ResNet's stem cannot be told from the images'."""
    first = (value for key, value in state.items() if re.search(r"(^|\.)conv1\.weight$", key))
    sizes = [value.shape[-1] for value in first if value.dim() == 4 and value.shape[1] == 3]
    return {3: SMALL_STEM, 7: IMAGENET_STEM}.get(sizes[0]) if sizes else None
