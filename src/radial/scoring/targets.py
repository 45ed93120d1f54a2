"""What can be scored: run directories, checkpoint files, models by name, and embeddings.

A target is read first (kernels and facts, in milliseconds) and built only where images come in.
A network is loaded whole or not at all: every key must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.backbones import build_backbone, is_export, load_backbone
from radial.checkpoints import load_into, part, read_file
from radial.checks import check_choice
from radial.data import Data
from radial.data.augmentations import View
from radial.data.preprocessing import IMAGENET, Preprocess, three
from radial.documents import parse_json
from radial.rbf.kernels import Kernels, load_kernels
from radial.scoring.embeddings import read_embeddings
from radial.scoring.networks import FEATURES, Asked, Network
from radial.scoring.projection import Radial, rebuild_head
from radial.scoring.rebuild import rebuild, vit_size
from radial.scoring.sources import SOURCES, from_source
from radial.training.config import from_dict, slug
from radial.training.hub import WEIGHTS
from radial.training.rundir import CONFIG, LAST, RESULT, STOPPED, read_result
from radial.verdicts import DIVERGED

COPIES = ("online", "momentum")
__all__ = ["IMAGENET", "Network", "Target", "build", "find", "rebuild_head"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A target as read: enough for what the kernels alone can tell."""

    name: str  # as the user gave it, or NAME of NAME=TARGET
    kind: str  # run, checkpoint, model or embeddings
    spec: str = ""  # what was named, without NAME= before and what it is built as after it
    backbone: str | None = None  # architecture of a checkpoint, said for this target alone
    asked_size: int | None = None  # side of its images, said for this target alone
    weights: str | None = None  # of a model by name
    state: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what radial train wrote beside it
    metadata: Mapping[str, str] = field(default_factory=dict)  # of safetensors
    path: Path | None = None
    directory: Path | None = None  # of the run, where results are written
    kernels: Kernels | None = None  # of the projection head's deepest layer
    verdict: str = ""  # of the training, from result.json
    reason: str = ""
    image_size: int | None = None  # asked for, or trained at, where that is known
    epoch: int | None = None
    features: Tensor | None = None  # (N, D), of embeddings
    views: Tensor | None = None  # (n, q, D), of embeddings
    error: str = ""  # why it could not be read, where others beside it could
    given: Callable[[int], Network] | None = None  # of a model in memory, for images of a size

    @property
    def method(self) -> str | None:
        return self.facts["config"]["method"] if self.facts else None

    @property
    def head(self) -> str | None:
        return self.facts["config"]["head"] if self.facts else None

    @property
    def trained_on(self) -> str:
        """The data of a run of radial's, as part of a file name; "" where it is not known."""
        if self.facts:
            return slug(str(self.facts["config"]["data"]))
        return self.metadata.get("data", "")

    @property
    def checkpoint(self) -> str | None:
        """The file, and after how many epochs it was written."""
        if self.path is None:
            return None
        return self.path.name + ("" if self.epoch is None else f", epoch {self.epoch + 1}")


def find(name: str) -> Target:
    """Read a target: ``[NAME=]TARGET[@BACKBONE or @WEIGHTS][@SIZEpx]``.

    Args:
        name: a run's directory, a checkpoint or embeddings file, a directory of a `transformers`
            model, or a model by one of the prefixes in `SOURCES`. A file of that very name
            comes before any reading of ``=`` and ``@``.

    Returns:
        What was read of it; `build` makes the network.

    Raises:
        ValueError: there is no such target, or it cannot be read.
    """
    label, spec, said = parsed(name)
    known: dict[str, Any] = {"name": label, "spec": spec, "asked_size": _size(said)}
    if known["asked_size"] is not None:
        known["image_size"] = known["asked_size"]
    path, rest = Path(spec).expanduser(), [word for word in said if _pixels(word) is None]
    if len(rest) > 1:
        raise ValueError(f"{name!r} says more than one architecture: {', '.join(rest)}")
    if path.is_dir():
        if (path / WEIGHTS).is_file() and is_export(read_file(path / WEIGHTS).metadata):
            return _checkpoint(path / WEIGHTS, known)  # a run that was exported as a folder
        if source := _directory(path):
            known["spec"] = f"{source}:{path}"
            return Target(kind="model", weights=rest[0] if rest else None, **known)
        return _run(path, known)
    if path.is_file():
        if path.suffix.lower() == ".onnx":
            return Target(kind="model", **(known | {"spec": f"onnx:{path}", "path": path}))
        embeddings = read_embeddings(path)
        if embeddings is not None:
            return Target(kind="embeddings", path=path, **(known | embeddings))
        return _checkpoint(path, known | {"backbone": rest[0] if rest else None})
    prefix, colon, named = spec.partition(":")
    if (colon and prefix in SOURCES and named) or (rest and not colon):
        return Target(kind="model", weights=rest[0] if rest else None, **known)
    prefixes = ", ".join(f"{source.spec}" for source in SOURCES.values())
    raise ValueError(
        f"no such target {name!r}: neither a run's directory, nor a checkpoint or embeddings file, "
        f"nor {prefixes} (NAME@none for random weights)"
    )


def parsed(name: str) -> tuple[str, str, list[str]]:
    """What to call it, what it is, and what is said behind ``@``.

    >>> parsed("mine=timm:resnet10t@none@64px")
    ('mine', 'timm:resnet10t', ['none', '64px'])
    """
    label, equals, rest = name.partition("=")
    named = bool(equals) and bool(label) and not set(label) & set("/\\:@")
    readings = [(name, name), *([(label, rest)] if named else [])]
    for shown, whole in readings:  # files first: their names may hold both signs
        for spec, said in _cuts(whole):
            if Path(spec).expanduser().exists():
                return shown, spec, said
    shown, whole = readings[-1]
    spec, *said = whole.split("@")
    return shown, spec, said


def _cuts(whole: str) -> Iterator[tuple[str, list[str]]]:
    words = whole.split("@")
    for count in range(len(words), 0, -1):
        yield "@".join(words[:count]), words[count:]


def _pixels(word: str) -> int | None:
    digits = word.removesuffix("px")
    return int(digits) if digits.isdecimal() and 0 < len(digits) < 6 else None


def _size(said: list[str]) -> int | None:
    return next((size for size in map(_pixels, said) if size), None)


def _directory(path: Path) -> str | None:
    """Which library wrote a model's directory, by its config; None for runs of ours."""
    if (path / CONFIG).is_file():
        return None
    if (path / "open_clip_config.json").is_file():
        return "openclip:local-dir"
    config = path / "config.json"
    if not config.is_file():
        return None
    try:
        told = parse_json(config.read_bytes())
    except ValueError as error:
        raise ValueError(f"{config} is damaged: no JSON") from error
    timms = isinstance(told, dict) and "architecture" in told and "model_type" not in told
    return "timm:local-dir" if timms else "hf"


def _run(directory: Path, known: dict[str, Any]) -> Target:
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
    return _checkpoint(path, known | {"kind": "run", "directory": directory, **told})


def _checkpoint(path: Path, known: dict[str, Any]) -> Target:
    file = read_file(path)
    facts = file.facts
    if known.get("kind") == "run" and not facts:
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
    elif not facts:
        size = vit_size(tensors)
    epoch = file.content.get("epoch")
    read: dict[str, Any] = {
        "kind": "checkpoint",
        "path": path,
        "state": tensors,
        "facts": facts,
        "metadata": file.metadata,
        "kernels": kernels,
        "image_size": size,
        "epoch": epoch if isinstance(epoch, int) else None,
    }
    return Target(**(read | known))


def build(
    target: Target,
    *,
    image_size: int | None = None,
    data_size: int = 224,
    backbone: str | None = None,
    features: str = "auto",
    copy: str = "online",
    radial_function: Radial = "gaussian",
    normalize: bool = False,
) -> Network:
    """The network of a target in eval mode, with how it sees images.

    Args:
        target: as `find` gives it.
        image_size: side of its images; by default what it was trained at. What a target says
            itself (``@96px``) comes first.
        data_size: that of the dataset, for networks that do not say.
        backbone: architecture of a checkpoint that is not radial's; without it the names and
            shapes of its tensors tell.
        features: pooled, cls, mean, or auto: what its makers evaluate.
        copy: online or momentum, where a checkpoint holds both.
        radial_function: of an RBFN head in a checkpoint of others.
        normalize: whether the RBF layers of such a head are normalised.

    Raises:
        ValueError: it cannot be built whole, or has no such features.
    """
    check_choice("features", features, FEATURES)
    check_choice("copy", copy, COPIES)
    size = target.asked_size or image_size
    if target.given is not None:
        return target.given(size or target.image_size or data_size)
    if target.kind == "embeddings":
        raise ValueError(f"{target.name} holds embeddings, not a network")
    if target.kind == "model":
        asked = Asked(weights=target.weights, size=size, data_size=data_size, features=features)
        return from_source(target.spec, asked)
    if target.facts:
        return _ours(target, size)
    assert target.path is not None
    if is_export(target.metadata):
        return _exported(target.path, size)
    return rebuild(
        target.state,
        target.path,
        image_size=size,
        data_size=data_size,
        backbone=target.backbone or backbone,
        features=features,
        copy=copy,
        radial_function=radial_function,
        normalize=normalize,
    )


def _ours(target: Target, size: int | None) -> Network:
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
        preprocess=Preprocess(
            size=size or facts["image_size"],
            mean=three(facts["mean"]),
            std=three(facts["std"]),
            source="its run",
        ),
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
    with torch.random.fork_rng(devices=[]):
        return starting_backbone(config, data, target.facts["stem"])[0].eval()


def _exported(path: Path, size: int | None) -> Network:
    """A file that ``radial export`` wrote, which says what it is."""
    module, metadata = load_backbone(path)
    known = {"mean", "std"} <= metadata.keys()
    mean, std = (three(parse_json(metadata[key])) if known else None for key in ("mean", "std"))
    return Network(
        name=metadata["name"],
        backbone=module.eval(),
        preprocess=Preprocess(
            size=size or int(metadata["image_size"]), mean=mean, std=std, source="its export"
        ),
    )
