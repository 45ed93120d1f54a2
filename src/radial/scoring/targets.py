"""What can be scored: run directories, checkpoint files, and models by name.

A target is read first (kernels and facts, in milliseconds) and built only where images come in.
A network is loaded whole or not at all: every key must match. From checkpoints of others it is
rebuilt by the names of their tensors; what these cannot tell is assumed, and said in notes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.backbones import (
    IMAGENET_STEM,
    SMALL_STEM,
    TORCHVISION,
    build_backbone,
    is_export,
    load_backbone,
)
from radial.checkpoints import is_momentum_copy, load_into, part, read_file
from radial.checks import one_line
from radial.data import Data
from radial.data.augmentations import View
from radial.rbf.functions import RadialFunction, TensorFunction
from radial.rbf.kernels import Kernels, load_kernels
from radial.rbf.layer import RBFLayer, deepest_rbf_layer
from radial.training.config import from_dict
from radial.training.rundir import CONFIG, LAST, RESULT, STOPPED, read_result
from radial.verdicts import DIVERGED

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean, std
Radial = str | RadialFunction | TensorFunction
MOST_STAGES = 64  # of a head


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A target as read: enough for what the kernels alone can tell."""

    name: str  # as the user gave it
    kind: str  # run, checkpoint or model
    state: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what radial train wrote beside it
    metadata: Mapping[str, str] = field(default_factory=dict)  # of safetensors
    path: Path | None = None
    directory: Path | None = None  # of the run, where results are written
    kernels: Kernels | None = None  # of the projection head's deepest layer
    verdict: str = ""  # of the training, from result.json
    reason: str = ""
    image_size: int | None = None  # it was trained at, where that is known
    epoch: int | None = None

    @property
    def method(self) -> str | None:
        return self.facts["config"]["method"] if self.facts else None

    @property
    def head(self) -> str | None:
        return self.facts["config"]["head"] if self.facts else None

    @property
    def checkpoint(self) -> str | None:
        """The file, and after how many epochs it was written."""
        if self.path is None:
            return None
        return self.path.name + ("" if self.epoch is None else f", epoch {self.epoch + 1}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A target as built, in eval mode."""

    name: str  # of the backbone
    backbone: nn.Module
    projection_head: nn.Module | None
    statistics: tuple[Tensor, Tensor] | None  # mean and std; None: the data's own
    random: bool = False  # asked for without weights
    notes: tuple[str, ...] = ()

    @property
    def rbf_layer(self) -> RBFLayer | None:
        """The deepest of the projection head."""
        head = self.projection_head
        return None if head is None else deepest_rbf_layer(head)


def find(name: str) -> Target:
    """Read a target: a run's directory, a checkpoint, or a name that :func:`build` can build."""
    path = Path(name).expanduser()
    if path.is_dir():
        return _run(name, path)
    if path.is_file():
        return _checkpoint(name, path)
    prefix, colon, rest = name.partition(":")
    if (colon and prefix in ("torchvision", "timm") and rest) or "@" in name:
        return Target(name=name, kind="model")
    raise ValueError(
        f"no such target {name!r}: neither a run's directory, nor a checkpoint file, nor "
        "torchvision:NAME or timm:NAME (NAME@none for random weights)"
    )


def _run(name: str, directory: Path) -> Target:
    if not (directory / CONFIG).is_file():
        raise ValueError(f"{directory} is not the directory of a run: it has no {CONFIG}")
    path = next(
        (directory / file for file in (LAST, STOPPED) if (directory / file).is_file()), None
    )
    if path is None:
        raise ValueError(f"{directory} has no checkpoint yet: neither {LAST} nor {STOPPED}")
    told = {}
    if (directory / RESULT).is_file():
        result = read_result(directory)
        told = {"verdict": result.verdict, "reason": result.reason}
    return _checkpoint(name, path, kind="run", directory=directory, **told)


def _checkpoint(name: str, path: Path, kind: str = "checkpoint", **known: Any) -> Target:
    file = read_file(path)
    facts = file.facts
    if kind == "run" and not facts:
        raise ValueError(f"{path} is not a checkpoint of radial train")
    tensors, kernels, size = file.tensors, None, facts.get("image_size")
    ends = ("kernels_centers", "log_shapes")
    of_kernels = [value for key, value in tensors.items() if key.split(".")[-1] in ends]
    if not all(bool(value.isfinite().all()) for value in of_kernels):
        known = known | {"verdict": DIVERGED, "reason": "its kernels are NaN or inf"}
    elif of_kernels:
        kernels = load_kernels(tensors)[-1]
    if is_export(file.metadata):
        size = int(file.metadata["image_size"])
    epoch = file.content.get("epoch")
    return Target(
        name=name,
        kind=kind,
        path=path,
        state=tensors,
        facts=facts,
        metadata=file.metadata,
        kernels=kernels,
        image_size=size,
        epoch=epoch if isinstance(epoch, int) else None,
        **known,
    )


def build(
    target: Target,
    *,
    image_size: int,
    backbone: str | None = None,
    radial_function: Radial = "gaussian",
    normalize: bool = False,
) -> Network:
    """The network of a target in eval mode, for images of ``image_size``.

    ``backbone`` names the architecture of a checkpoint that is not radial's; without it
    torchvision's ResNets are tried. Named models and foreign checkpoints get ImageNet's mean
    and standard deviation, as LightlySSL's transforms have them; random weights the data's own.
    """
    if target.kind == "model":
        return _model(target.name, image_size)
    if target.facts:
        return _ours(target)
    assert target.path is not None
    if is_export(target.metadata):
        return _exported(target.path)
    return _foreign(target, image_size, backbone, radial_function, normalize)


def _ours(target: Target) -> Network:
    from radial.training.build import build_heads  # brings LightlySSL: seconds

    facts = target.facts
    config = from_dict(facts["config"])
    module, info = build_backbone(
        str(config.backbone), image_size=facts["image_size"], stem=facts["stem"]
    )
    head, _ = build_heads(config, info.feature_dim)
    for name, network in (("backbone", module), ("projection_head", head)):
        complaint = f"{target.path}: its {name} does not fit its config"
        load_into(network, part(target.state, f"method.{name}."), complaint)
    return Network(
        name=info.name,
        backbone=module.eval(),
        projection_head=head.eval(),
        statistics=(torch.tensor(facts["mean"]), torch.tensor(facts["std"])),
    )


def own_view(target: Target, image_size: int) -> View:
    """The first view that a run was trained with.

    Raises:
        ValueError: if the target is not a run of radial's.
    """
    from radial.training.build import build_views  # brings LightlySSL: seconds

    if not target.facts:
        raise ValueError(f"{target.name} does not say how it was trained: choose another --augment")
    return build_views(from_dict(target.facts["config"]), image_size)[0]


def before_training(target: Target, data: Data) -> nn.Module | None:
    """The backbone of a run before its first step; None where it is not known or was trained."""
    from radial.training.build import starting_backbone

    if not target.facts:
        return None
    config = from_dict(target.facts["config"])
    if config.weights is not None:
        return None
    with torch.random.fork_rng():
        return starting_backbone(config, data, target.facts["stem"])[0].eval()


def _model(name: str, image_size: int) -> Network:
    """``torchvision:resnet50``, ``timm:vit_tiny…``, ``resnet9-w0.25@none``: NAME[@WEIGHTS]."""
    model, _, weights = name.removeprefix("torchvision:").partition("@")
    chosen = None if weights.lower() == "none" else weights or "DEFAULT"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, info = build_backbone(model, image_size=image_size, weights=chosen)
    return Network(
        name=info.name,
        backbone=module.eval(),
        projection_head=None,
        statistics=_statistics(module) if chosen else None,
        random=chosen is None,
    )


def _statistics(module: nn.Module) -> tuple[Tensor, Tensor]:
    """What the weights were trained with: timm's own record, else ImageNet's."""
    told = getattr(module, "pretrained_cfg", None) or {}
    mean, std = told.get("mean", IMAGENET[0]), told.get("std", IMAGENET[1])
    return torch.tensor(mean), torch.tensor(std)


def _exported(path: Path) -> Network:
    """A file that ``radial export`` wrote, which says what it is."""
    module, metadata = load_backbone(path)
    known = {"mean", "std"} <= metadata.keys()
    mean, std = (torch.tensor(json.loads(metadata[key]) if known else 0) for key in ("mean", "std"))
    return Network(
        name=metadata["name"],
        backbone=module.eval(),
        projection_head=None,
        statistics=(mean, std) if known else None,
    )


def _foreign(
    target: Target,
    image_size: int,
    backbone: str | None,
    radial_function: Radial,
    normalize: bool,
) -> Network:
    assert target.path is not None
    name, module, head, notes = rebuild(
        target.state,
        target.path,
        image_size=image_size,
        backbone=backbone,
        radial_function=radial_function,
        normalize=normalize,
    )
    return Network(
        name=name,
        backbone=module.eval(),
        projection_head=head,
        statistics=_statistics(module),
        notes=(*notes, "normalised with ImageNet's mean and std, which the file does not record"),
    )


def rebuild(
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    image_size: int,
    backbone: str | None,
    radial_function: Radial,
    normalize: bool,
) -> tuple[str, nn.Module, nn.Module | None, tuple[str, ...]]:
    """The backbone of a checkpoint, its name before it, its projection head, and what to say."""
    own = {key: value for key, value in tensors.items() if not is_momentum_copy(key)}
    state = renamed(own or tensors)
    stem = _stem(state)
    complaints = []
    for name in (backbone,) if backbone else TORCHVISION:
        try:
            module, info = build_backbone(name, image_size=image_size, weights=state, stem=stem)
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
    return info.name, module, head, notes


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
