"""Label-free scores of a network while it trains: the same images and views at every look.

Legend: N images, q views of each, B images of a batch, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.checks import check_size
from radial.data.at_hand import given_images
from radial.data.augmentations import FIXED_VIEWS, View, scoring_view
from radial.evaluation.features import Layers, NotFinite, extract_layers, stacked
from radial.files import atomic
from radial.metrics.registry import FROM_VIEWS, LEAST_IMAGES, SCORES, layers_of, parse, quality
from radial.metrics.scores import Scores
from radial.rbf.kernels import load_kernels
from radial.rbf.layer import deepest_rbf_layer

IMAGES, VIEWS = 512, 4  # as many as retrieval looks at; views of each
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean, std
Network = Callable[[Tensor], Tensor]  # images (B, 3, S, S) → features (B, F) or (B, F, h, w)


class Monitor:
    """Scores of a network without labels, for a training loop of your own.

    Images and views are drawn once, so that two looks differ by the network alone. A look runs in
    eval mode without gradients and leaves no trace: training goes on bit for bit as it would have
    without it. A compiled network is run as it was before it was compiled.

    Args:
        images: held-out images as for `radial.score`: a folder, paths or a pattern, a uint8 tensor
            (N, 3, S, S), or a dataset. It is to give pictures, not views: the monitor draws those.
        scores: names as in ``radial score --list``. A value is told under the name that was asked
            for, with _ in place of @. A name without a layer is read where it usually is, or else
            from the layer there is.
        image_size: side of the views; by default that of the images, at most 224.
        mean: of the pixels, (3,), by which images are normalised; by default ImageNet's, as in the
            transforms of LightlySSL and torchvision.
        std: likewise.
        view: fixed (SimCLR's), crop or strong, as in ``radial score``, or a
            `radial.data.augmentations.View`; view_retrieval_recipes takes all three.
        views: q, of each image.
        most: images that are looked at, at most.
        seed: of the choice of images and of the views.
        batch: images at once.

    Raises:
        ValueError: an unknown score, or fewer than 16 images.

    Example:
        >>> images = torch.randint(0, 256, (32, 3, 16, 16), dtype=torch.uint8)
        >>> monitor = Monitor(images, scores=("view_retrieval", "rankme@backbone"))
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        >>> sorted(monitor(network))
        ['rankme_backbone', 'view_retrieval']
    """

    def __init__(
        self,
        images: Any,
        scores: Iterable[str] = ("view_retrieval",),
        *,
        image_size: int | None = None,
        mean: Sequence[float] | Tensor = IMAGENET[0],
        std: Sequence[float] | Tensor = IMAGENET[1],
        view: View | str = FIXED_VIEWS[0],
        views: int = VIEWS,
        most: int = IMAGES,
        seed: int = 0,
        batch: int = 256,
    ) -> None:
        if isinstance(scores, str):
            raise ValueError(f"scores must be a tuple of names, not {scores!r}")
        self.wanted = {name: parse(name)[0] for name in scores}
        check_size("views", views, minimum=2)
        self.images, size = given_images(images, image_size=image_size, most=most, seed=seed)
        if len(self.images) < LEAST_IMAGES:
            found = len(self.images)
            raise ValueError(f"a monitor needs {LEAST_IMAGES} images at least, not {found}")
        self.drawn: dict[str, Any] = {
            "view": scoring_view(view, size) if isinstance(view, str) else view,
            "q": views,
            "seed": seed,
        }
        self.common: dict[str, Any] = {
            "mean": torch.as_tensor(mean),
            "std": torch.as_tensor(std),
            "image_size": size,
            "batch": batch,
        }
        self._start: Tensor | None = None  # (N, q, F)
        self._best = -math.inf

    @property
    def needs(self) -> set[str]:
        """What the scores are computed from, see `radial.metrics.compute.Sample`."""
        return {SCORES[name].needs for name in self.wanted.values()}

    def begin(self, backbone: nn.Module | Network) -> None:
        """Remember the network before its first step, which arc and garc compare with.

        Args:
            backbone: as it is before training.
        """
        network = _network(backbone)
        with _same_random_numbers(network):
            self._start = extract_layers(
                network, None, self.images, **self.drawn, **self.common
            ).backbone

    def __call__(
        self, backbone: nn.Module | Network, projection_head: nn.Module | None = None
    ) -> dict[str, float]:
        """One look.

        Args:
            backbone: images (B, 3, S, S) → features (B, F); feature maps are averaged over their
                places.
            projection_head: features → embeddings, for the scores of the projector and kernels.

        Returns:
            A value for each score that was asked for; NaN where the network gives NaN or inf.

        Raises:
            ValueError: a score of a layer that is not there, or a network that does not take the
                images or does not give a row for each.
        """
        network, head = _network(backbone), projection_head
        head = getattr(head, "_orig_mod", head)
        layer = None if head is None else deepest_rbf_layer(head)
        there = {"backbone": True, "projector": head is not None, "kernels": layer is not None}
        keys = {name: _place(name, there) for name in self.wanted}
        with _same_random_numbers(network):
            try:
                found = self._measure(network, head, layer, set(keys.values()))
            except NotFinite:  # of a network that has diverged
                found = {}
        return {label(name): found.get(key, math.nan) for name, key in keys.items()}

    def keep_best(
        self, model: nn.Module, path: Path | str, backbone: str = "backbone"
    ) -> dict[str, float]:
        """One look; where the first score is better than ever before, the model is saved.

        Args:
            model: whose ``state_dict`` is saved.
            path: of the file, which is whole at any time.
            backbone: dotted name of the part of the model that is looked at.

        Returns:
            As a look does.

        Raises:
            ValueError: as a look does, or a name that the model does not have.
        """
        found = self(part_of(model, backbone))
        first = next(iter(self.wanted))
        value = quality(SCORES[self.wanted[first]].better, found[label(first)])
        if value > self._best:
            self._best = value
            with atomic(path, "wb") as file:
                torch.save(model.state_dict(), file)
        return found

    def _measure(
        self, network: nn.Module, head: nn.Module | None, layer: Any, keys: set[str]
    ) -> dict[str, float]:
        def run(**how: Any) -> Layers:
            return extract_layers(network, head, self.images, **how, **self.common)

        nothing = Layers(backbone=torch.zeros(0))
        plain = run() if "features" in self.needs else nothing
        views = run(**self.drawn) if self.needs & {*FROM_VIEWS} - {"recipes"} else nothing
        by_recipe = nothing
        if "recipes" in self.needs:
            chosen = [scoring_view(name, self.common["image_size"]) for name in FIXED_VIEWS]
            by_recipe = stacked([
                views if view == self.drawn["view"] and views is not nothing
                else run(**self.drawn | {"view": view})
                for view in chosen
            ])  # fmt: skip
        turned = run(turned=True) if "rotations" in self.needs else nothing
        start = nothing if self._start is None else Layers(backbone=self._start)
        scores = Scores(sorted(keys), repeats=0)
        seen = {"features": plain, "views": views, "recipes": by_recipe, "rotations": turned}
        seen["start_views"] = start
        for name in ("backbone", "projector"):
            found = {key: getattr(value, name) for key, value in seen.items()}
            scores.update(name, **{k: v for k, v in found.items() if v is not None and len(v)})
        if layer is not None and any(key.endswith("@kernels") for key in keys):
            if not all(bool(value.isfinite().all()) for value in layer.state_dict().values()):
                raise NotFinite("kernels have NaN or inf")
            scores.update("kernels", kernels=load_kernels(layer.state_dict())[-1])
            if views.kernel_input is not None:
                names = ("nearest", "activations", "distances")
                answers = layer.answers(views.kernel_input.to(layer.centers))
                scores.update("kernels", **dict(zip(names, answers)))
        return {score.key: score.value for score in scores.compute()}


def label(name: str) -> str:
    """A score's name as every logger takes it: MLflow drops an @.

    >>> label("view_retrieval@projector")
    'view_retrieval_projector'
    """
    return name.replace("@", "_")


def part_of(model: nn.Module, name: str) -> Any:
    """An attribute by its dotted name; a ValueError that names those there are."""
    try:
        return attrgetter(name)(model)
    except AttributeError:
        known = ", ".join(known for known, _ in model.named_children()) or "none"
        kind = type(model).__name__
        raise ValueError(f"{kind} has no {name!r}; its parts are: {known}") from None


def _place(name: str, there: dict[str, bool]) -> str:
    """name@layer for the first of its layers that is there."""
    layers = layers_of(name)
    for layer in layers:
        if there[layer]:
            return f"{parse(name)[0]}@{layer}"
    what = "an RBFN head" if layers == ("kernels",) else "a projection head"
    raise ValueError(f"{name} needs {what}, and there is none")


def _network(backbone: nn.Module | Network) -> nn.Module:
    inner = getattr(backbone, "_orig_mod", backbone)  # of torch.compile: a look is not worth it
    return inner if isinstance(inner, Rows) else Rows(inner)


class Rows(nn.Module):
    """One row of features an image from any network; feature maps are averaged over places.

    Args:
        network: images → features (B, F) or (B, F, h, w).
        owner: what is put in eval mode; by default the network, if it is a module.
    """

    def __init__(self, network: nn.Module | Network, owner: nn.Module | None = None) -> None:
        super().__init__()
        self.owner = network if owner is None and isinstance(network, nn.Module) else owner
        self.call = (network,)  # in a tuple: not registered twice

    def forward(self, images: Tensor) -> Tensor:
        features = self.call[0](images)
        whole = isinstance(features, Tensor) and features.dim() == 4
        return features.mean((2, 3)) if whole else features


def _same_random_numbers(network: nn.Module) -> AbstractContextManager[None]:
    """Whatever a look draws, training draws what it would have drawn."""
    places = {tensor.device for tensor in network.parameters()}
    cuda = [place for place in places if place.type == "cuda"]
    return torch.random.fork_rng(devices=cuda)
