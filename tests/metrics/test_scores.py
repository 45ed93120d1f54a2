"""The registry as a contract, and the accumulator: batches, shared halves, intervals."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from radial import metrics
from radial.metrics import compute
from radial.metrics.compute import BY_IMAGE, COMPUTE, Sample, kernel_scores
from radial.metrics.registry import LAYERS, SCORES, parse, quality
from radial.metrics.scores import Score, Scores, compare, half_sample_interval
from radial.metrics.separation import center_rank, center_spread, sns
from radial.rbf.kernels import Kernels

N, Q, D, K = 200, 3, 12, 6


def some_kernels(generator: torch.Generator) -> Kernels:
    centers = torch.randn(K, D, generator=generator)
    shapes = torch.full((K,), 0.2)
    widths = 1.0 / (math.sqrt(2.0) * shapes)
    return Kernels(name="layers.2", centers=centers, shapes=shapes, widths=widths)


def full_sample(generator: torch.Generator, scale: float = 1.0, shift: float = 0.0) -> Sample:
    means = torch.randn(N, 1, D, generator=generator)
    views = means + 0.3 * torch.randn(N, Q, D, generator=generator)
    turned = torch.randn(N, 4, D, generator=generator) + torch.eye(4, D)
    start_views = means + torch.randn(N, Q, D, generator=generator)
    found = some_kernels(generator)
    scaled = torch.cdist(views.view(-1, D), found.centers).view(N, Q, K) * 0.2
    return Sample(
        features=views[:, 0] * scale + shift,
        views=views * scale + shift,
        recipes=torch.stack([views, start_views], dim=1) * scale + shift,
        rotations=turned * scale + shift,
        start_views=start_views * scale + shift,
        kernels=found,
        nearest=scaled.argmin(-1),
        activations=torch.exp(-scaled.square()),
        distances=scaled.square(),
    )


def test_scores_are_known_before_torch_is_loaded() -> None:
    code = """
import sys
from radial.metrics.registry import SCORES, layers_of, quality
from radial.metrics import SCORES as again
assert again is SCORES and quality(SCORES["uniformity"].better, 1.0) == -1.0
print(sorted({"torch", "scipy", "sklearn", "numpy"} & set(sys.modules)))
from radial.metrics import lidar, rankme
import radial.metrics.compute
assert callable(radial.metrics.lidar) and "torch" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_score_is_computed_by_one_function() -> None:
    assert list(COMPUTE) == list(SCORES)


def test_pairs_are_those_of_the_first_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "PAIRS_IMAGES", 64)
    z = torch.randn(100, 8)
    for name in ("uniformity", "two_nn"):
        assert SCORES[name].fn(Sample(features=z)) == COMPUTE[name](Sample(features=z[:64]))
        assert SCORES[name].fn(Sample(features=z)) == pytest.approx(getattr(metrics, name)(z[:64]))
        assert "at most 4,096 images" in SCORES[name].settings


def test_names_of_the_package_resolve() -> None:
    assert all(getattr(metrics, name) is not None for name in metrics.__all__)
    assert set(metrics.__all__) <= set(dir(metrics))
    with pytest.raises(AttributeError, match="no attribute 'rankmee'"):
        metrics.rankmee  # noqa: B018


@pytest.mark.parametrize("info", SCORES.values(), ids=list(SCORES))
class TestEveryScore:
    def test_is_described(self, info) -> None:
        assert info.description
        assert info.settings
        assert info.reference
        assert info.better in ("higher", "lower", "near 1")
        assert info.layer in info.layers
        assert set(info.layers) <= set(LAYERS)

    def test_is_a_finite_number_on_ordinary_features(self, info, generator) -> None:
        value = info.fn(full_sample(generator))
        assert isinstance(value, float)
        assert math.isfinite(value)

    def test_is_the_same_whatever_the_order_of_images(self, info, generator) -> None:
        sample = full_sample(generator)
        order = torch.randperm(N, generator=generator)
        shuffled = Sample(
            kernels=sample.kernels, **{name: getattr(sample, name)[order] for name in BY_IMAGE}
        )
        rel = 0.15 if info.name in _BY_CHANCE else 1e-6  # random starts
        # accuracies on other halves: three standard errors of the difference of two shares
        off = 3 * math.sqrt(2 * 0.25 / N) if info.name in _HALVED else None
        assert info.fn(shuffled) == pytest.approx(info.fn(sample), rel=rel, abs=off)

    def test_takes_float32_as_float64(self, info, generator) -> None:
        sample = full_sample(generator)
        exact = Sample(
            kernels=sample.kernels,
            nearest=sample.nearest,
            **{name: getattr(sample, name).double() for name in BY_IMAGE if name != "nearest"},
        )
        assert info.fn(sample) == pytest.approx(info.fn(exact), rel=1e-5)

    def test_is_the_same_twice_and_leaves_the_global_random_state(self, info, generator) -> None:
        sample = full_sample(generator)
        before = torch.random.get_rng_state()
        assert info.fn(sample) == info.fn(sample)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_collapsed_network_never_gives_an_exception_or_infinity(self, info, generator) -> None:
        """All images alike: a number that says so, or "not computed"."""
        scores = Scores([info.name], repeats=0)
        same, turned = torch.ones(N, Q, D), torch.ones(N, 4, D)
        given = {"features": same[:, 0], "views": same, "rotations": turned, "start_views": same}
        given["recipes"] = same[:, None]
        scores.update("backbone", **given)
        scores.update("projector", **given)
        scores.update(
            "kernels",
            kernels=some_kernels(generator),
            nearest=torch.zeros(N, Q, dtype=torch.int64),
            activations=torch.ones(N, Q, K),
            distances=torch.ones(N, Q, K),
        )
        found = scores.compute()
        assert found
        for score in found:
            assert math.isfinite(score.value) or score.warning.startswith("not computed: ")


_BY_CHANCE = ("mst_dimension", "kmeans_agreement", "kmeans_silhouette", "kmeans_davies_bouldin")
_HALVED = ("rotation_probe", "cluster_learnability")
SCALE_FREE = (
    "rankme", "rankme_centred", "alpha_req", "nesum", "stable_rank", "participation_ratio",
    "decorrelation", "alignment", "uniformity", "w2_uniformity", "self_cluster", "two_nn",
    "mst_dimension", "view_retrieval", "view_retrieval_plain", "view_retrieval_top1", "acr", "arc",
    "garc_mean", "garc_max", "info_nce", "info_nce_whitened", "rotation_probe",
    "cluster_learnability", "kmeans_agreement",
)  # fmt: skip


@pytest.mark.parametrize("name", SCALE_FREE)
def test_scale_does_not_matter(name) -> None:
    info = SCORES[name]
    first, second = (
        full_sample(torch.Generator().manual_seed(0), scale) for scale in (1.0, 1000.0)
    )
    assert info.fn(first) == pytest.approx(info.fn(second), rel=1e-4)


def test_parse() -> None:
    assert parse("rankme") == ("rankme", "projector")
    assert parse("rankme@backbone") == ("rankme", "backbone")
    assert parse("sns_width") == ("sns_width", "kernels")
    with pytest.raises(ValueError, match="unknown score 'rankmee'; known: 'sns_paper'"):
        parse("rankmee")
    with pytest.raises(ValueError, match="unknown layer of rankme 'kernels'"):
        parse("rankme@kernels")


def accumulated(batches: int, repeats: int = 4) -> tuple[Score, ...]:
    sample = full_sample(torch.Generator().manual_seed(0))
    scores = Scores(["rankme", "lidar", "kernel_information", "sns_width"], repeats=repeats)
    for rows in torch.arange(N).chunk(batches):
        scores.update("backbone", features=sample.features[rows], views=sample.views[rows])
        names = ("nearest", "activations", "distances")
        part = {name: getattr(sample, name)[rows] for name in names}
        scores.update("kernels", kernels=sample.kernels, **part)
    return scores.compute()


def test_batches_do_not_matter() -> None:
    assert accumulated(1) == accumulated(7)
    assert [s.key for s in accumulated(1)] == [
        "kernel_information@kernels",
        "sns_width@kernels",
        "rankme@backbone",
        "lidar@backbone",
    ]
    assert [s.samples for s in accumulated(1)] == [N, K, N, N]


def test_a_half_has_no_row_twice_and_the_same_rows_for_every_target(generator) -> None:
    sample = full_sample(generator)
    half = sample.half(3, seed=5)
    assert half.features.shape == (N // 2, D)
    assert len(half.features.unique(dim=0)) == N // 2
    assert len(half.kernels.centers) == K // 2
    assert torch.equal(half.features, half.views[:, 0])  # the same images
    other = Sample(features=torch.arange(N)[:, None]).half(3, seed=5)
    assert torch.equal(sample.features[other.features[:, 0]], half.features)
    assert not torch.equal(sample.half(4, seed=5).features, half.features)


def test_interval_covers_what_new_images_give() -> None:
    """Half-sampling against the truth: the same score of 60 fresh sets of images of this size."""
    found = []
    for trial in range(60):
        generator = torch.Generator().manual_seed(trial)
        scores = Scores(["participation_ratio@backbone"], repeats=10)
        features = torch.randn(400, D, generator=generator) * torch.linspace(1.0, 0.1, D)
        scores.update("backbone", features=features)
        found += scores.compute()
    values = torch.tensor([score.value for score in found])
    covered = sum(score.low <= float(values.mean()) <= score.high for score in found)
    assert covered >= 54  # nominally 57 of 60
    spread = sum(score.high - score.low for score in found) / len(found) / 2 / 2.262
    assert spread == pytest.approx(float(values.std()), rel=0.2)


def test_interval_needs_replicates() -> None:
    assert half_sample_interval(1.0, ()) == (None, None)
    assert half_sample_interval(1.0, (1.0, math.nan, math.nan)) == (None, None)
    assert half_sample_interval(math.nan, (1.0, 2.0)) == (None, None)
    low, high = half_sample_interval(1.0, (0.9, 1.1))
    assert low < 0.0 < 2.0 < high  # two of them say little


def scored(value: float, replicates: tuple[float, ...], better: str = "higher") -> Score:
    low, high = half_sample_interval(value, replicates)
    return Score(
        name="x", layer="backbone", value=value, low=low, high=high, samples=10, better=better,
        replicates=replicates,
    )  # fmt: skip


def test_comparison_is_paired() -> None:
    """Both move together from half to half: each alone is uncertain, their difference is not."""
    noise = (-3.0, 2.0, 1.0, -1.0, 2.5, -1.5)
    a = scored(10.5, tuple(10.5 + x for x in noise))
    b = scored(10.0, tuple(10.0 + x + 0.01 * i for i, x in enumerate(noise)))
    assert a.low < b.value < a.high
    found = compare(a, b)
    assert found.difference == pytest.approx(0.5)
    assert found.decided
    assert compare(b, a).difference == pytest.approx(-0.5)
    assert not compare(a, scored(10.4, tuple(10.0 - x for x in noise))).decided
    lower = compare(scored(1.0, (1.0, 1.1), "lower"), scored(2.0, (2.0, 2.1), "lower"))
    assert lower.difference == pytest.approx(1.0)
    assert not compare(scored(1.0, ()), scored(2.0, ())).decided


def test_quality_and_mismatch() -> None:
    assert [quality(b, 3.0) for b in ("higher", "lower", "near 1")] == [3.0, -3.0, -2.0]
    other = scored(1.0, ())
    with pytest.raises(ValueError, match="are different scores"):
        compare(other, Score(**{**_fields(other), "name": "y"}))


def _fields(score: Score) -> dict:
    return {name: getattr(score, name) for name in Score.__slots__}


def test_kernel_scores_are_the_functions(generator) -> None:
    found = some_kernels(generator)
    values = kernel_scores(found)
    c, s, w = found.centers.double(), found.shapes.double(), found.widths.double()
    assert values["sns_paper"] == pytest.approx(float(sns(c, s)))
    assert values["sns_width"] == pytest.approx(float(sns(c, w)))
    assert values["sns_width_raw"] == pytest.approx(float(sns(c, w, dimension_correction=False)))
    assert values["center_spread"] == center_spread(found.centers)
    assert values["center_rank"] == center_rank(found.centers)


def test_center_scores_closed_forms() -> None:
    simplex = torch.eye(9)
    assert center_rank(simplex) == pytest.approx(8.0)
    assert center_rank(torch.arange(9.0)[:, None] * torch.ones(1, 4)) == pytest.approx(1.0)
    assert center_rank(torch.ones(4, 3)) == 0.0
    assert center_spread(torch.tensor([[-1.0, 1.0], [1.0, -1.0]])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Scores(["nothing"]), "unknown score 'nothing'"),
        (lambda: Scores(repeats=1), "repeats must be 0 or at least 2"),
        (lambda: Scores(repeats=-1), "repeats must be an integer"),
        (lambda: Scores().update("middle", features=torch.ones(2, 2)), "unknown layer 'middle'"),
        (lambda: center_spread(torch.ones(1, 3)), "K ≥ 2"),
        (lambda: center_rank(torch.full((3, 3), math.nan)), "NaN or inf"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_batches_of_another_width_are_refused() -> None:
    scores = Scores()
    scores.update("backbone", features=torch.ones(4, 3))
    with pytest.raises(
        ValueError, match=r"backbone features must have shape \(4, 3\), not \(4, 5\)"
    ):
        scores.update("backbone", features=torch.ones(4, 5))


def test_too_few_images_is_a_warning_not_a_crash() -> None:
    scores = Scores(["two_nn@backbone", "rankme@backbone"], repeats=2)
    scores.update("backbone", features=torch.randn(2, 5))
    found = {score.name: score for score in scores.compute()}
    assert math.isfinite(found["rankme"].value)
    assert math.isnan(found["two_nn"].value)
    assert found["two_nn"].warning.startswith("not computed: ")


def test_nan_features_are_told() -> None:
    scores = Scores(["rankme@backbone"], repeats=0)
    scores.update("backbone", features=torch.full((8, 4), math.nan))
    (score,) = scores.compute()
    assert "32 of 32 values are NaN" in score.warning
