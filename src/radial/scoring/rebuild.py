"""Networks of other projects' checkpoints, rebuilt by the names and shapes of their tensors.

What tensors cannot tell is assumed, and said in notes. A network is rebuilt whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from radial.backbones import IMAGENET_STEM, SMALL_STEM, TORCHVISION, build_backbone
from radial.checkpoints import is_momentum_copy, part
from radial.checks import one_line
from radial.data.preprocessing import IMAGENET, Preprocess, three
from radial.rbf.functions import RadialFunction, TensorFunction
from radial.rbf.layer import RBFLayer, deepest_rbf_layer
from radial.scoring.sources import Network

Radial = str | RadialFunction | TensorFunction
MOST_STAGES = 64  # of a head


def rebuild(
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    image_size: int | None = None,
    data_size: int = 224,
    backbone: str | None = None,
    radial_function: Radial = "gaussian",
    normalize: bool = False,
) -> Network:
    """The network of a checkpoint of others; see :func:`radial.scoring.targets.build`."""
    own = {key: value for key, value in tensors.items() if not is_momentum_copy(key)}
    state = renamed(own or tensors)
    stem = _stem(state)
    size = image_size or data_size
    complaints = []
    for name in (backbone,) if backbone else TORCHVISION:
        try:
            module, info = build_backbone(name, image_size=size, weights=state, stem=stem)
            break
        except ValueError as error:
            complaints.append(str(error))
    else:
        if backbone:
            raise ValueError(f"{path}: {complaints[0]}")
        found = ", ".join(list(tensors)[:3])
        raise ValueError(
            f"{path}: no backbone found in it: expected the keys of one of "
            f"{', '.join(TORCHVISION)}, such as conv1.weight and layer1.0.conv1.weight, under any "
            f"prefix; found {found}, …; name its architecture by --backbone"
        )
    head, notes = rebuild_head(state, info.feature_dim, radial_function, normalize)
    if len(own) < len(tensors):
        notes = (*notes, "the momentum copy in the file was left aside")
    told = getattr(module, "pretrained_cfg", None) or {}
    return Network(
        name=info.name,
        backbone=module.eval(),
        projection_head=head,
        preprocess=Preprocess(
            size=size,
            mean=three(told.get("mean", IMAGENET[0])),
            std=three(told.get("std", IMAGENET[1])),
            source="assumed",
        ),
        notes=(*notes, "normalised with ImageNet's mean and std, which the file does not record"),
    )


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


def _stem(state: Mapping[str, Tensor]) -> str | None:
    """By the size of the first convolution: a ResNet's stem cannot be told from the images'."""
    first = (value for key, value in state.items() if re.search(r"(^|\.)conv1\.weight$", key))
    sizes = [value.shape[-1] for value in first if value.dim() == 4 and value.shape[1] == 3]
    return {3: SMALL_STEM, 7: IMAGENET_STEM}.get(sizes[0]) if sizes else None


def rebuild_head(
    state: Mapping[str, Tensor],
    features: int,
    radial_function: Radial = "gaussian",
    normalize: bool = False,
) -> tuple[nn.Module | None, tuple[str, ...]]:
    """A projection head in LightlySSL's layout, ``projection_head.layers.<i>.…``, from its tensors.

    Linear, BatchNorm and RBF layers are known by their tensors, a place without any is a ReLU.
    What tensors cannot tell is assumed, and said: the radial function, normalisation, and that a
    head with BatchNorm is radial's (residual), one without it the published. A head with more
    than such layers is left out: half of a head is another head.
    """
    prefix = _projection_prefix(state)
    if prefix is None:
        return None, ("no projection head in LightlySSL's layout: backbone only",)
    whole = part(state, prefix.removesuffix("layers."))
    tensors = part(whole, "layers.")
    places: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, rest = name.partition(".")
        places.setdefault(int(number), {})[rest] = value
    residual = any("running_mean" in found for found in places.values())
    try:
        if len(tensors) < len(whole) or max(places) > MOST_STAGES:
            raise ValueError("it has more than numbered layers")
        head = nn.Sequential(
            *(
                _stage(places.get(place, {}), residual, radial_function, normalize)
                for place in range(max(places) + 1)
            )
        )
        head.load_state_dict(tensors, strict=True)
        if bool(head.eval()(torch.zeros(1, features)).isnan().any()):
            raise ValueError("its output is NaN")
    except (RuntimeError, ValueError, KeyError) as error:
        return None, (f"the projection head was not rebuilt ({one_line(error)}): backbone only",)
    if deepest_rbf_layer(head) is None:
        return head, ("head rebuilt from its keys, with ReLU between its layers",)
    path = "with" if residual else "without"
    normal = "normalised" if normalize else "not normalised"
    kind = f"{radial_function}, {normal}, Euclidean, {path} residual path"
    return head, (f"head rebuilt from its keys as {kind}",)


def _projection_prefix(state: Mapping[str, Tensor]) -> str | None:
    """``model.projection_head.layers.`` where there is one head that is no momentum copy."""
    found = {m[1] for key in state if (m := re.match(r"(.*\bprojection_head\.layers\.)\d+\.", key))}
    own = sorted(name for name in found if not is_momentum_copy(name))
    return own[0] if own else None


def _stage(
    tensors: Mapping[str, Tensor], residual: bool, radial_function: Radial, normalize: bool
) -> nn.Module:
    if "kernels_centers" in tensors:
        kernels, width = tensors["kernels_centers"].shape
        out = len(tensors["weights"])
        return RBFLayer(
            width,
            kernels,
            out,
            radial_function=radial_function,
            normalize=normalize and (True if residual else "published"),
            residual=residual and out == width,
            init="paper",
        )
    if "running_mean" in tensors:
        affine = "weight" in tensors
        return nn.BatchNorm1d(len(tensors["running_mean"]), affine=affine)
    if "weight" in tensors and tensors["weight"].dim() == 2:
        out, width = tensors["weight"].shape
        return nn.Linear(width, out, bias="bias" in tensors)
    return nn.ReLU()
