"""The images and views that all targets of one table are measured on.

Legend: N images, n images with q views each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Generator, nn

from radial.checks import did_you_mean
from radial.data import Data, Images, load_data
from radial.data.augmentations import FIXED_VIEWS, View, recipe, scoring_view, view_words
from radial.data.datasets import data_root
from radial.data.given import given, named
from radial.devices import device_of
from radial.evaluation.cache import default_cache
from radial.evaluation.features import Layers, extract_layers, stacked
from radial.metrics.registry import LEAST_IMAGES, RETRIEVAL_IMAGES, ROTATION_IMAGES, SCORES
from radial.metrics.scores import Score
from radial.scoring.settings import EvalSettings, Settings
from radial.scoring.targets import Network, Target, before_training, own_view
from radial.training.config import slug

Progress = Callable[[str, int, int], None]  # what, done, total
Asked = TypeVar("Asked", Settings, EvalSettings)


def asked(
    kind: type[Asked], images: Any, settings: Asked | None, options: dict[str, Any]
) -> tuple[Asked, Any]:
    """Settings with the options that were given beside them, and what the images come from.

    Args:
        kind: of settings.
        images: as for :func:`radial.score`.
        settings: as they stand before the options.
        options: fields of the settings; ``max_images`` is their ``images``.

    Returns:
        The settings, and a dataset by name, one that is loaded, or what was handed over.

    Raises:
        ValueError: an option that there is not, or images that were given twice.
    """
    if isinstance(images, kind):
        told = f"give {kind.__name__} as settings=…, or its fields as keywords"
        warnings.warn(f"settings as the second argument: {told}", DeprecationWarning, stacklevel=3)
        settings, images = images, None
    known = {field.name for field in fields(kind)} - {"images"} | {"max_images"}
    for name in options:
        if name not in known:
            raise ValueError(f"unknown option {name!r}{did_you_mean(name, known)}")
    data = options.pop("data", None)
    if "max_images" in options:
        options["images"] = options.pop("max_images")
    if settings is None or options:
        settings = kind(**options) if settings is None else replace(settings, **options)
    given_twice = images is not None and data is not None
    if given_twice or (settings.data is not None and not isinstance(images, Data | None)):
        raise ValueError(f"images were given twice: {type(images).__name__} and data=")
    source = images if images is not None else data if data is not None else settings.data
    return settings, named(source) or source


def load_images(
    source: Any, settings: Settings | EvalSettings, image_size: int | None, labels: Any = None
) -> Data:
    """Images at a size, wherever they come from; those of an evaluation divided, with labels."""
    if isinstance(source, Data):
        return source
    if isinstance(source, str) and named(source):
        return load_data(
            source,
            root=settings.data_root,
            image_size=image_size,
            split=settings.split,
            max_bad=settings.max_bad_images,
        )
    if isinstance(settings, Settings):
        found = given(source, most=settings.images, seed=settings.seed)
    else:
        found = given(source, labels, own=True)
    return found.data(
        image_size,
        divide=isinstance(settings, EvalSettings),
        root=data_root(settings.data_root),
        max_bad=settings.max_bad_images,
    )


def network_layers(
    network: Network,
    head: nn.Module | None,
    data: Data,
    images: Images,
    settings: Settings | EvalSettings,
    what: str,
    progress: Progress | None,
    **view: Any,
) -> Layers:
    """The layers of a network, of images of ``data`` or, with ``view``, of their views.

    Images and views are the same for every network; each sees them as its ``preprocess`` says.
    """
    seen = network.preprocess.on(data)
    size = images.stored_size if seen.transform is not None else seen.size
    if "view" in view:
        view["view"] = view["view"].at(size)
    return extract_layers(
        network.backbone,
        head,
        images,
        mean=torch.tensor(seen.mean),
        std=torch.tensor(seen.std),
        image_size=size,
        crop=seen.crop,
        interpolation=seen.interpolation,
        transform=seen.transform,
        batch=settings.batch,
        device=device_of(settings.device),
        precision=settings.precision,
        cache=default_cache() if settings.cache and network.cached else None,
        progress=progress and (lambda done, total: progress(what, done, total)),
        **view,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a network made of images, of views of them, turned ones, and before training."""

    plain: Layers
    views: Layers
    recipes: Layers | None = None  # (n, r, q, ·) of views by each of FIXED_VIEWS
    turned: Layers | None = None
    start: Layers | None = None


class Bench:
    """The images and views that all targets of one table are measured on."""

    def __init__(
        self,
        settings: Settings,
        progress: Progress | None,
        source: Any,
        sizes: Sequence[int | None] = (),
        trained_on: Sequence[str] = (),
    ) -> None:
        self.settings, self.progress, self.source = settings, progress, source
        self._trained_on = trained_on
        self._sizes = {settings.image_size} if settings.image_size else {*sizes}
        self._data: Data | None = None

    @property
    def data(self) -> Data:
        """The images of all targets, loaded once.

        At the size that all targets have in common; else as they are where they are all of one
        size, and otherwise at the largest that a target asks for.
        """
        if self._data is None:
            one = len(self._sizes) == 1
            self._data = self._load(next(iter(self._sizes)) if one else None)
            largest = max((size for size in self._sizes if size), default=0)
            photographs = self._data.image_size < self._data.test.stored_size
            if not one and photographs and largest > self._data.image_size:
                self._data = self._load(largest)
        return self._data

    def _load(self, size: int | None) -> Data:
        return load_images(self.source, self.settings, size)

    def part(self, data: Data) -> str:
        """As asked; else all images, or those of test where a target was trained on others here."""
        if not isinstance(self.source, str | Data):
            return "test"  # images that were handed over: all of them, in every part
        if self.settings.part != "auto":
            return self.settings.part
        here = slug(data.name)
        seen = any(name == here or name.startswith(f"{here}-") for name in self._trained_on)
        return "test" if seen else "all"

    def images(self, data: Data) -> tuple[Images, Images]:
        """N images and the first n of them, the same for every target."""
        settings, part = self.settings, self.part(data)
        pool = getattr(data, part)
        if len(pool) < LEAST_IMAGES:
            found = f"{len(pool)} images in its {part} part"
            raise ValueError(f"{data.name} has {found}; {LEAST_IMAGES} are needed")
        order = torch.randperm(len(pool), generator=Generator().manual_seed(settings.seed))
        return pool.subset(order[: settings.images]), pool.subset(order[: settings.view_images])

    def view(self, target: Target, size: int) -> View:
        """How views of an image are drawn for a target."""
        augment = self.settings.augment
        if augment == "own":
            return own_view(target, size)
        return scoring_view(augment, size) if augment in FIXED_VIEWS else recipe(augment, size)[0]

    def measure(
        self, target: Target, network: Network, data: Data, needs: Collection[str]
    ) -> Measured:
        """What a network makes of the images, and of the views and turns of some of them."""
        settings, (images, viewed) = self.settings, self.images(data)

        def extracted(what: str, chosen: Images, of: Network = network, **how: Any) -> Layers:
            head, named = of.projection_head, f"{target.name}: {what}"
            return network_layers(of, head, data, chosen, settings, named, self.progress, **how)

        size = data.image_size
        drawn: dict[str, Any] = {
            "view": self.view(target, size),
            "q": settings.views,
            "seed": settings.seed,
        }
        found: dict[str, Any] = {"views": extracted("views", viewed, **drawn)}
        if "recipes" in needs:
            few = viewed.subset(range(min(RETRIEVAL_IMAGES, len(viewed))))
            found["recipes"] = stacked(
                [
                    found["views"]
                    if name == settings.augment
                    else extracted(
                        f"{name} views", few, **drawn | {"view": scoring_view(name, size)}
                    )
                    for name in FIXED_VIEWS
                ]
            )
        if "rotations" in needs:
            few = viewed.subset(range(min(ROTATION_IMAGES, len(viewed))))
            found["turned"] = extracted("turned images", few, turned=True)
        before = before_training(target, data) if "start_views" in needs else None
        if before is not None:
            few = viewed.subset(range(min(RETRIEVAL_IMAGES, len(viewed))))
            start = replace(network, backbone=before, projection_head=None)
            found["start"] = extracted("views at the start", few, start, **drawn)
        return Measured(plain=extracted("images", images), **found)

    def with_gallery(
        self, scores: Sequence[Score], target: Target, data: Data, *, fitted: bool = False
    ) -> list[Score]:
        """Scores of views with the gallery that they are of; those of other ones do not compare.

        Nor do kernels that were ``fitted`` now with kernels that were trained.
        """

        def gallery(score: Score) -> str:
            words = of_views(score)
            if fitted and score.layer == "kernels":
                words = "; ".join(filter(None, [words, "kernels fitted now"]))
            return words

        def of_views(score: Score) -> str:
            if not SCORES[score.name].from_views:
                return ""
            if SCORES[score.name].needs == "recipes":
                many = f"{score.samples} images × {self.settings.views} views"
                return f"{many}, {', '.join(FIXED_VIEWS)}: {data.image_size} px"
            words = self.gallery(target, data, score.samples)
            if self.settings.augment == "own" and score.name == "lidar":
                return words.partition(":")[0]  # own views are how its paper compares runs
            return words

        return [replace(score, gallery=gallery(score)) for score in scores]

    def gallery(self, target: Target, data: Data, images: int) -> str:
        """How many views of how many images there are, and how they are drawn."""
        words = view_words(self.view(target, data.image_size))
        return f"{images} images × {self.settings.views} views, {self.settings.augment}: {words}"

    def facts(self, data: Data) -> dict[str, Any]:
        images, viewed = self.images(data)
        names = ("views", "augment", "repeats", "seed")
        return {
            "data": data.name,
            "split": data.split,
            "part": self.part(data),
            "image_size": data.image_size,
            "images": len(images),
            "view_images": len(viewed),
            **{name: getattr(self.settings, name) for name in names},
        }
