"""What can be scored: run directories, checkpoint files, and models by name.

A target is read first (kernels and facts, in milliseconds) and built only where images come in.
A network is loaded whole or not at all: every key must match.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.backbones import build_backbone, is_export, load_backbone
from radial.checkpoints import load_into, part, read_file
from radial.data import Data
from radial.data.augmentations import View
from radial.rbf.kernels import Kernels, load_kernels
from radial.rbf.layer import RBFLayer, deepest_rbf_layer
from radial.scoring.foreign import Radial, rebuild
from radial.training.config import from_dict
from radial.training.rundir import CONFIG, LAST, RESULT, STOPPED, read_result
from radial.verdicts import DIVERGED

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean, std


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
