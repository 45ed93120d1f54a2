"""A head fitted to frozen features: it learns, its kernels move, scale makes no difference."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing
from torch.nn import functional as F

from radial import RBFLayer, RBFNProjectionHead, calibrate, diagnose, load_kernels
from radial.evaluation.fit_head import FittedHead, fit_head

IMAGES, FEATURES, CLUSTERS = 320, 24, 8
QUICK: dict[str, Any] = {"num_kernels": 16, "output_dim": 16, "steps": 40, "batch": 128}


def clustered(q: int = 3) -> Tensor:
    """(n, q, F): clusters of images, and views of an image closer together than images are."""
    generator = torch.Generator().manual_seed(0)
    centers = 2.0 * torch.randn(CLUSTERS, FEATURES, generator=generator)
    images = centers.repeat(IMAGES // CLUSTERS, 1) + torch.randn(
        IMAGES, FEATURES, generator=generator
    )
    views = images[:, None] + 0.5 * torch.randn(IMAGES, q, FEATURES, generator=generator)
    return views.relu()  # as a ResNet's


def layer_of(fitted: FittedHead) -> RBFLayer:
    return next(module for module in fitted.head.modules() if isinstance(module, RBFLayer))


@torch.no_grad()
def activations(fitted: FittedHead, features: Tensor) -> Tensor:
    """From raw features, by the stages of the head one by one."""
    linear, norm, layer = fitted.head.layers[:3]
    return layer.activations(norm(linear(features.flatten(0, -2))))


@pytest.fixture(scope="module")
def fitted() -> FittedHead:
    return fit_head(clustered())


def test_loss_falls_below_that_of_a_constant(fitted: FittedHead) -> None:
    assert fitted.constant_loss == pytest.approx(math.log(2 * 256 - 1))
    assert fitted.steps == len(fitted.losses) == 200
    last = sum(fitted.losses[-10:]) / 10
    assert last < fitted.losses[0] - 0.1
    assert last < fitted.constant_loss - 1.0


def test_head_is_alive_and_has_the_form_of_others(fitted: FittedHead) -> None:
    head = fitted.head
    assert isinstance(head, RBFNProjectionHead)
    assert fitted.status == fitted.verdict == fitted.health.status == "alive"
    assert not any(module.training for module in head.modules())
    assert all(parameter.grad is None for parameter in head.parameters())
    assert [type(stage).__name__ for stage in head.layers] == [
        "Linear", "BatchNorm1d", "RBFLayer", "Linear", "BatchNorm1d",
    ]  # fmt: skip
    assert layer_of(fitted).num_kernels == 128
    assert layer_of(fitted).in_features == FEATURES
    assert diagnose(head, clustered()).alive
    file = io.BytesIO()
    torch.save(head.state_dict(), file)
    file.seek(0)
    twin = RBFNProjectionHead(FEATURES, FEATURES, 128, 2, num_kernels=128, residual=False).eval()
    twin.load_state_dict(torch.load(file, weights_only=True))
    features = clustered()[:, 0]
    assert torch.equal(twin(features), head(features))
    assert torch.equal(load_kernels(head.state_dict())[-1].centers, layer_of(fitted).centers)


def test_new_images_of_a_cluster_come_out_alike(fitted: FittedHead) -> None:
    """Views it was not trained on: cosines within an image above those between images."""
    generator = torch.Generator().manual_seed(9)
    views = (
        clustered()[:, :2] + 0.3 * torch.randn(IMAGES, 2, FEATURES, generator=generator)
    ).relu()
    with torch.no_grad():
        z = F.normalize(fitted.head(views.flatten(0, 1)), dim=1).view(IMAGES, 2, -1)
    cosines = z[:, 0] @ z[:, 1].T
    apart = (cosines.sum() - cosines.trace()) / (IMAGES * (IMAGES - 1))
    assert cosines.trace() / IMAGES > 0.6
    assert apart.abs() < 0.1


def test_running_statistics_are_those_of_the_features(fitted: FittedHead) -> None:
    with torch.no_grad():
        linear, norm = fitted.head.layers[:2]
        h = norm(linear(clustered().flatten(0, 1))).double()
        gamma, beta = norm.weight.double(), norm.bias.double()
    torch.testing.assert_close(h.mean(0), beta, rtol=0, atol=1e-4)
    torch.testing.assert_close(h.std(0), gamma.abs(), rtol=1e-3, atol=1e-4)


def test_kernels_move() -> None:
    """Against the same head without a step of training (lr = 0)."""
    still, moved = fit_head(clustered(), lr=0.0, **QUICK), fit_head(clustered(), **QUICK)
    start, end = layer_of(still).centers.detach(), layer_of(moved).centers.detach()
    nearest = torch.cdist(start, start).fill_diagonal_(math.inf).amin(1)
    assert ((end - start).norm(dim=1) > 0.05 * nearest).all()
    shapes = layer_of(moved).log_shapes - layer_of(still).log_shapes
    assert shapes.detach().abs().max() > 0.01


def test_start_is_a_calibrated_head() -> None:
    """With lr = 0: centres lie where samples do, seen from their mean; shapes are calibrate()'s."""
    fitted, x = fit_head(clustered(), lr=0.0, **QUICK), clustered().flatten(0, 1)
    layer = layer_of(fitted)
    with torch.no_grad():
        h = fitted.head.layers[1](fitted.head.layers[0](x))
    rays = F.normalize(h - h.mean(0), dim=1)
    cosines = F.normalize(layer.centers.detach() - h.mean(0), dim=1) @ rays.T
    assert cosines.amax(1).min() > 0.9999
    fresh = RBFNProjectionHead(FEATURES, FEATURES, 16, 2, num_kernels=16, residual=False)
    calibrate(fresh, (x - x.mean(0)) / x.std(0))
    expected = float(fresh.layers[2].log_shapes.detach().mean())
    assert float(layer.log_shapes.detach().mean()) == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize("plain", [False, True], ids=["views", "plain"])
def test_deterministic_and_random_state_left_alone(plain: bool) -> None:
    features = clustered()[:, 0] if plain else clustered()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fit_head(features, **QUICK)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = fit_head(features, **QUICK), fit_head(features, seed=1, **QUICK)
    assert first.losses == again.losses
    for name, value in first.head.state_dict().items():
        assert torch.equal(value, again.head.state_dict()[name])
    assert first.losses != other.losses


@pytest.mark.parametrize("plain", [False, True], ids=["views", "plain"])
@pytest.mark.parametrize(("scale", "offset"), [(1000.0, 5.0), (1e-4, 0.0), (1.0, -50.0)])
def test_scale_and_offset_make_no_difference(plain: bool, scale: float, offset: float) -> None:
    features = clustered()[:, 0] if plain else clustered()
    moved = features * scale + offset
    first, second = fit_head(features, **QUICK), fit_head(moved, **QUICK)
    torch.testing.assert_close(
        activations(second, moved), activations(first, features), rtol=0, atol=1e-3
    )
    assert activations(first, features).std() > 0.05
    assert second.losses == pytest.approx(first.losses, rel=1e-4)


def test_constant_features_take_no_part() -> None:
    features = clustered()
    more = torch.cat([features, torch.full((IMAGES, 3, 2), 7.0)], dim=2)
    fitted = fit_head(more, **QUICK)
    assert fitted.status == "alive"
    assert (fitted.head.layers[0].weight[:, FEATURES:] == 0).all()
    changed = more.clone()
    changed[..., FEATURES:] = -1e6
    assert torch.equal(fitted.head(more[:, 0]), fitted.head(changed[:, 0]))


def test_plain_features() -> None:
    fitted = fit_head(clustered()[:, 0], **QUICK | {"steps": 100})
    assert fitted.status == "alive"
    assert fitted.losses[-1] < min(fitted.losses[0], fitted.constant_loss) - 0.3


def test_views_are_told_from_noise() -> None:
    """Without anything in common between views there is less to learn."""
    noise = torch.randn(IMAGES, 3, FEATURES, generator=torch.Generator().manual_seed(0))
    assert fit_head(noise, **QUICK).losses[-1] > fit_head(clustered(), **QUICK).losses[-1] + 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_precisions(dtype: torch.dtype) -> None:
    fitted = fit_head(clustered().to(dtype), **QUICK)
    assert fitted.head.layers[0].weight.dtype == torch.float32
    expected = fit_head(clustered(), **QUICK).losses[-1]
    assert fitted.losses[-1] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_works_where_gradients_are_off(mode: Any) -> None:
    with mode():
        fitted = fit_head(clustered() * 1.0, **QUICK)
    assert fitted.losses == fit_head(clustered(), **QUICK).losses
    assert fitted.head(clustered()[:, 0]).requires_grad


def test_small_batches_and_sizes() -> None:
    fitted = fit_head(clustered()[:40], num_kernels=8, output_dim=5, hidden_dim=11, steps=7)
    assert fitted.constant_loss == pytest.approx(math.log(79))  # 40 images are one batch
    assert fitted.head(clustered()[:3, 0]).shape == (3, 5)
    assert layer_of(fitted).centers.shape == (8, 11)
    wide = fit_head(torch.randn(40, 300), num_kernels=8, steps=1)
    assert layer_of(wide).in_features == 256


def with_nan() -> Tensor:
    features = clustered()
    features[3, 1, 2] = math.nan
    return features


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (with_nan(), {}, "features: 1 of 23040 values are NaN or inf"),
        (clustered()[:, 0] * math.inf, {}, "values are NaN or inf"),
        (torch.ones(300, 2, 8), {}, "all 8 features are constant"),
        (torch.full((300, 8), 1e6), {}, "all 8 features are constant"),
        (clustered()[:255], {}, "128 kernels need at least 256 images, not 255"),
        (clustered()[:5], {"num_kernels": 3}, "3 kernels need at least 6 images, not 5"),
        (clustered(q=1), {}, "one view an image"),
        (clustered()[:, 0, 0], {}, r"must have shape \(n, q, F\) or \(N, F\), not \(320,\)"),
        (clustered()[..., :0], {}, "must have shape"),
        (clustered().long(), {}, "must be a floating-point torch tensor, not torch.int64"),
        ([[1.0]], {}, "must be a floating-point torch tensor, not list"),
        (clustered(), {"num_kernels": 0}, "num_kernels must be an integer of at least 1"),
        (clustered(), {"steps": 0}, "steps must be an integer of at least 1"),
        (clustered(), {"batch": 1}, "batch must be an integer of at least 2"),
        (clustered(), {"seed": -1}, "seed must be an integer of at least 0"),
        (clustered(), {"temperature": 0.0}, "temperature must be a finite number"),
        (clustered(), {"lr": math.nan}, "lr must be a finite number"),
        (clustered(), {"hidden_dim": 0}, "hidden_dim must be an integer of at least 1"),
    ],
)
def test_bad_input(features: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_head(features, **options)


def _fit_on_one_rank(rank: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    if rank == 0:  # the other one leaves: whoever waits for it gets an error
        fitted = fit_head(clustered(), **QUICK)
        torch.save((fitted.losses, fitted.head.state_dict()), f"{folder}/fitted.pt")


def test_one_rank_of_several_fits_a_head_without_the_others(tmp_path: Path) -> None:
    multiprocessing.spawn(_fit_on_one_rank, args=(str(tmp_path),), nprocs=2)
    losses, state = torch.load(tmp_path / "fitted.pt", weights_only=True)
    alone = fit_head(clustered(), **QUICK)
    assert losses == pytest.approx(alone.losses)
    assert all(
        torch.allclose(state[name], value) for name, value in alone.head.state_dict().items()
    )
