"""What cards and evaluations are computed on. Light to import: no torch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

from radial.checks import check_choice, check_number, check_size
from radial.data.augmentations import FIXED_VIEWS
from radial.devices import NAMES, PRECISIONS
from radial.metrics.registry import LEAST_IMAGES
from radial.training.config import DEFAULTS, RADIAL_FUNCTIONS

PROTOCOLS = ("exact", "paper")
AUGMENT = (*FIXED_VIEWS, "own")
MOST_VIEWS = 16  # of an image; LiDAR gains from them


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What both are computed on, and how.

    Args:
        image_size: by default what the target was trained at, else the dataset's.
        split: as for radial train.
        data_root: where downloaded datasets are kept.
        max_bad_images: how many unreadable images are skipped before it is an error.
        backbone: architecture of checkpoints that are not radial's; PATH@BACKBONE for one alone.
        features: pooled, cls, mean, or auto: what a network's makers evaluate.
        copy: online or momentum, where a checkpoint holds both.
        batch: images at once.
        device: auto (a GPU where there is one), cpu, cuda or mps.
        precision: of the networks: 32, bf16 or 16 (16 needs a GPU); scores are of float32 features.
        cache: keep features on disk.
    """

    data: str | None = None
    seed: int = 0
    image_size: int | None = None
    split: Literal["auto", "paper", "own"] = "auto"
    data_root: str | None = None
    max_bad_images: int = 10
    backbone: str | None = None
    features: Literal["auto", "pooled", "cls", "mean"] = "auto"
    copy: Literal["online", "momentum"] = "online"
    batch: int = 256
    device: str = "auto"
    precision: Literal["32", "bf16", "16"] = "32"
    cache: bool = True

    def __post_init__(self) -> None:
        check_choice("device", self.device, NAMES)
        check_choice("precision", self.precision, PRECISIONS)
        check_size("seed", self.seed, minimum=0)
        check_size("batch", self.batch)


@dataclass(frozen=True, kw_only=True)
class Settings(_Asked):
    """What a card is computed on; the same for every target, so that they compare.

    Args:
        data: a dataset as for radial train, or null for what the kernels alone can tell.
        seed: of the choice of images, the views and the half-samples.
        part: train, val, test or all; auto is all, or test where a target was trained on the rest.
        images: how many images, at most.
        view_images: how many of these also as augmented views, at most.
        views: of each of those, at most 16.
        augment: how the views are drawn: fixed (SimCLR's for the image size), crop (its crops and
            flips alone), strong (more colour, smaller crops), or own, each run's own recipe;
            view_retrieval_recipes has the first three in any case. A method's name, for its first
            view, is deprecated.
        scores: names as in radial score --list, every layer where none is named; all by default.
        repeats: half-samples that the intervals are computed from; 0 for none.
        radial_function: of RBFN heads in checkpoints that are not radial's.
        normalize: whether the RBF layers of such checkpoints are normalised.
        fit_head: fit an RBFN head where a target has no kernels.
    """

    part: Literal["auto", "all", "train", "val", "test"] = "auto"
    images: int = 2048
    view_images: int = 1024
    views: int = 4
    augment: str = "fixed"
    scores: tuple[str, ...] | None = None
    repeats: int = 10
    radial_function: str = "gaussian"
    normalize: bool = False
    fit_head: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("part", self.part, ("auto", "all", "train", "val", "test"))
        for name, least in {"images": LEAST_IMAGES, "view_images": 8, "views": 2}.items():
            check_size(name, getattr(self, name), minimum=least)
        if self.views > MOST_VIEWS:
            raise ValueError(f"views must be at most {MOST_VIEWS}, not {self.views}")
        check_size("repeats", self.repeats, minimum=0)
        check_choice("radial_function", self.radial_function, RADIAL_FUNCTIONS)
        check_choice("augment", self.augment, (*AUGMENT, *DEFAULTS))
        if self.augment in DEFAULTS:
            warnings.warn(
                f"augment={self.augment!r}: a method's name goes with the next version; choose one "
                f"of {', '.join(AUGMENT)}",
                FutureWarning,  # which a user of the command sees
                stacklevel=3,
            )


@dataclass(frozen=True, kw_only=True)
class EvalSettings(_Asked):
    """How a target is evaluated with labels.

    Args:
        data: a labelled dataset as for radial train.
        seed: of the paper protocol's split and the bootstrap.
        protocol: exact, paper, or both as exact,paper.
        k: neighbours that vote.
        temperature: of their votes.
    """

    protocol: tuple[str, ...] = ("exact",)
    k: int = 20
    temperature: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.protocol:
            raise ValueError(f"protocol is empty; known: {', '.join(PROTOCOLS)}")
        for name in self.protocol:
            check_choice("protocol", name, PROTOCOLS)
        check_size("k", self.k)
        check_number("temperature", self.temperature, low=1e-6)
