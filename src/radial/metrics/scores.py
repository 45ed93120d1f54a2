"""The one accumulator: collects features once, computes the scores of the registry from them.

Legend: N images, n images with q views each, B and b of a batch, D features, K kernels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from radial.checks import check_choice, check_shape, check_size
from radial.metrics.compute import Sample
from radial.metrics.registry import LAYERS, SCORES, ScoreInfo, layers_of, parse, quality
from radial.rbf.kernels import Kernels

TOLERATED = 0.05  # share of half-samples on which a score may be undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One number with all that is needed to read it.

    Attributes:
        name: of the registry.
        layer: backbone, projector or kernels.
        value: the score.
        low: of the 95 % interval over images (or kernels); None where it was not asked for.
        high: likewise.
        samples: images, or kernels.
        better: higher, lower or near 1.
        settings: centring, epsilon and so on, in words.
        start: its value before the first step, where the run recorded it.
        warning: why it should not be read as it stands.
        replicates: on half of the samples each; paired between targets.
        gallery: images × views and how they were drawn, where its value depends on it.
    """

    name: str
    layer: str
    value: float
    low: float | None
    high: float | None
    samples: int
    better: str
    settings: str = ""
    start: float | None = None
    warning: str = ""
    replicates: tuple[float, ...] = ()
    gallery: str = ""

    @property
    def key(self) -> str:
        """``name@layer``, as in tables and ``--by``."""
        return f"{self.name}@{self.layer}"


class Scores:
    """Collects features layer by layer, then computes scores with intervals.

    Half-samples without replacement give the 95 % interval: resampling rows with replacement
    would lower every rank. The spread of a half-sample's score is that of the whole sample's,
    since half of the images are left out each time.

    Args:
        names: as for `parse`, a bare name meaning every layer it can be read from; without
            names, all.
        repeats: half-samples, 0 for no interval.
        seed: of the half-samples.

    Raises:
        ValueError: an unknown score or layer, or one half-sample, which has no spread.

    Example:
        >>> scores = Scores(["rankme@backbone"], repeats=0)
        >>> scores.update("backbone", features=torch.eye(4).repeat(4, 1))
        >>> [(score.key, round(score.value, 2)) for score in scores.compute()]
        [('rankme@backbone', 4.0)]
    """

    def __init__(
        self, names: Iterable[str] | None = None, *, repeats: int = 10, seed: int = 0
    ) -> None:
        check_size("repeats", repeats, minimum=0)
        if repeats == 1:
            raise ValueError("repeats must be 0 or at least 2: one half-sample has no spread")
        check_size("seed", seed, minimum=0)
        self.repeats, self.seed = repeats, seed
        self.wanted: dict[tuple[str, str], None] = {}
        for name in SCORES if names is None else names:
            chosen = parse(name)[0]
            self.wanted |= dict.fromkeys((chosen, at) for at in layers_of(name))
        self.reset()

    def reset(self) -> None:
        """Forget what was collected."""
        self._batches: dict[str, dict[str, list[Tensor]]] = {}
        self._kernels: Kernels | None = None

    def update(
        self,
        layer: str,
        *,
        features: Tensor | None = None,
        views: Tensor | None = None,
        recipes: Tensor | None = None,
        rotations: Tensor | None = None,
        start_views: Tensor | None = None,
        kernels: Kernels | None = None,
        nearest: Tensor | None = None,
        activations: Tensor | None = None,
        distances: Tensor | None = None,
    ) -> None:
        """Add a batch of a layer; what is not given is not scored.

        Args:
            layer: backbone, projector or kernels.
            features: of plain images, (B, D).
            views: q of each image, (b, q, D).
            recipes: q views of each image by each of r recipes, (b, r, q, D).
            rotations: of each image in four turns, (b, 4, D).
            start_views: the same views before the first step, (b, q, D).
            kernels: of the head; once.
            nearest: kernel of each view, (b, q).
            activations: of the kernels, (b, q, K).
            distances: to the kernels, (ε‖x − c‖)², (b, q, K).

        Raises:
            ValueError: an unknown layer, or a batch of another width than those before.
        """
        check_choice("layer", layer, LAYERS)
        given = {"features": features, "views": views, "nearest": nearest}
        given |= {"recipes": recipes, "rotations": rotations, "start_views": start_views}
        for name, value in (given | {"activations": activations, "distances": distances}).items():
            if value is None:
                continue
            parts = self._batches.setdefault(layer, {}).setdefault(name, [])
            if parts and name != "nearest":
                check_shape(f"{layer} {name}", value, (len(value), *parts[0].shape[1:]))
            parts.append(value.detach().cpu())
        if kernels is not None:
            self._kernels = kernels

    def compute(self) -> tuple[Score, ...]:
        """One score for each wanted name and layer that there is something to compute from.

        Returns:
            The scores, by layer, in the order of the registry.
        """
        found = []
        for layer in LAYERS:
            parts: dict[str, Any] = {
                name: torch.cat(batches) for name, batches in self._batches.get(layer, {}).items()
            }
            if layer == "kernels" and self._kernels is not None:
                parts["kernels"] = self._kernels
            sample = Sample(**parts)
            infos = [
                SCORES[name]
                for name, at in self.wanted
                if at == layer and sample.has(SCORES[name].needs)
            ]
            halves = [
                {info.name: _quiet(info, half) for info in infos}
                for half in (sample.half(number, self.seed) for number in range(self.repeats))
            ]
            found += [
                _score(info, layer, sample, tuple(half[info.name] for half in halves))
                for info in infos
            ]
        return tuple(found)


def _score(info: ScoreInfo, layer: str, sample: Sample, halves: tuple[float, ...]) -> Score:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            value, trouble = info.fn(sample), ""
        except ValueError as error:
            value, trouble = math.nan, f"not computed: {error}"
    lines = [trouble, *(str(warning.message) for warning in told)]
    low, high = half_sample_interval(value, halves)
    return Score(
        name=info.name,
        layer=layer,
        value=value,
        low=low,
        high=high,
        samples=min(sample.size(info.needs), info.at_most or sample.size(info.needs)),
        better=info.better,
        settings=info.settings,
        warning="; ".join(dict.fromkeys(line for line in lines if line)),
        replicates=halves,
    )


def _quiet(info: ScoreInfo, sample: Sample) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return info.fn(sample)
        except ValueError:
            return math.nan


def half_sample_interval(
    value: float, replicates: Sequence[float]
) -> tuple[float | None, float | None]:
    """value ± t₉₅ · standard deviation of the half-samples; None where there are too few."""
    from scipy.stats import t

    known = [x for x in replicates if math.isfinite(x)]
    if len(known) < max(2, (1 - TOLERATED) * len(replicates)) or not math.isfinite(value):
        return None, None
    spread = float(torch.tensor(known, dtype=torch.float64).std())
    reach = float(t.ppf(0.975, len(known) - 1)) * spread
    return value - reach, value + reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """By how much the first of two scores is better, in the score's own units."""

    difference: float
    low: float | None
    high: float | None

    @property
    def decided(self) -> bool:
        """The interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high


def compare(first: Score, second: Score) -> Comparison:
    """Paired over half-samples: both scores must come from the same images and seed.

    Args:
        first: the score that is asked about.
        second: what it is compared with, of the same name and layer.

    Returns:
        By how much the first is better, with its 95 % interval where there are half-samples.

    Raises:
        ValueError: scores of different names or layers, or of different galleries of views.

    Example:
        >>> facts = {"name": "rankme", "layer": "projector", "samples": 8, "better": "higher"}
        >>> a, b = (Score(value=v, low=None, high=None, **facts) for v in (3.0, 2.0))
        >>> compare(a, b).difference
        1.0
    """
    if first.key != second.key:
        raise ValueError(f"{first.key} and {second.key} are different scores")
    if first.gallery != second.gallery:
        galleries = f"{first.gallery or 'unknown'} and {second.gallery or 'unknown'}"
        raise ValueError(f"{first.key} of different views does not compare: {galleries}")
    difference = quality(first.better, first.value) - quality(second.better, second.value)
    pairs = list(zip(first.replicates, second.replicates))
    paired = first.samples == second.samples and len(first.replicates) == len(second.replicates)
    if not pairs or not paired:
        return Comparison(difference=difference, low=None, high=None)
    low, high = half_sample_interval(
        difference, [quality(first.better, a) - quality(second.better, b) for a, b in pairs]
    )
    return Comparison(difference=difference, low=low, high=high)
