"""calibrate: deterministic, scale-free, the same on every rank, and honest about bad input."""

from __future__ import annotations

import copy
import itertools
import os
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing, nn

from radial import RBFLayer, RBFNProjectionHead, calibrate, diagnose


def features(samples: int = 512, dimensions: int = 64) -> torch.Tensor:
    """Non-negative and correlated, as a backbone gives them."""
    mix = torch.randn(16, dimensions, generator=torch.Generator().manual_seed(7))
    return torch.relu(torch.randn(samples, 16) @ mix + 1.0)


def states_equal(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return all(torch.equal(left[key], right[key]) for key in left)


def test_deterministic_given_the_seed_and_independent_of_global_randomness() -> None:
    head, x = RBFNProjectionHead(64, 64, 32, num_kernels=16), features()
    one, two, three = (copy.deepcopy(head) for _ in range(3))
    calibrate(one, x, seed=3)
    torch.randn(5)
    calibrate(two, x, seed=3)
    calibrate(three, x, seed=4)
    assert states_equal(one, two)
    assert not states_equal(one, three)


def test_batches_are_the_same_as_one_batch() -> None:
    head, x = RBFNProjectionHead(64, 64, 32, num_kernels=16), features()
    one, two = copy.deepcopy(head), copy.deepcopy(head)
    calibrate(one, x)
    calibrate(two, iter(x.split(100)))
    assert states_equal(one, two)


def test_second_calibration_changes_nothing() -> None:
    head, x = RBFNProjectionHead(64, 64, 32, num_kernels=16, batch_norm=False), features()
    once = copy.deepcopy(calibrate(head, x))
    assert states_equal(once, calibrate(head, x))


def test_no_parameter_is_added_and_mode_is_kept() -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=16)
    keys = list(head.state_dict())
    head.train()
    head.layers[1].eval()
    calibrate(head, features())
    assert list(head.state_dict()) == keys
    assert head.training
    assert not head.layers[1].training
    assert all(p.requires_grad and p.grad is None for p in head.parameters())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_alive_with_unit_variance_on_new_features_of_any_scale(
    scale: float, batch_norm: bool, normalize: bool, distance: str
) -> None:
    head = RBFNProjectionHead(
        64,
        64,
        32,
        num_kernels=32,
        batch_norm=batch_norm,
        normalize=normalize,
        residual=False,
        distance=distance,
    )
    calibrate(head, scale * features(1024))
    new = scale * features(512)
    report = diagnose(head.eval(), new)
    assert report.alive, report
    assert report.dead_kernels == 0.0
    hidden = new
    for stage in head.layers:
        hidden = stage(hidden)
        if isinstance(stage, RBFLayer):
            assert 0.5 < float(hidden.detach().var(0).mean()) < 2.0


@pytest.mark.parametrize("normalize", [False, True, "published"])
def test_revives_the_published_head(normalize: bool | str) -> None:
    head = RBFNProjectionHead.paper(512, 512, 64, num_kernels=32, normalize=normalize)
    x = features(256, 512)
    assert not diagnose(head, x).alive
    report = diagnose(calibrate(head, x), features(256, 512))
    assert report.alive, report
    assert report.dead_kernels == 0.0


def test_mean_is_removed_through_the_bias_that_follows() -> None:
    head = RBFNProjectionHead(64, 64, 32, 2, num_kernels=16, batch_norm=False, residual=False)
    x = features(2048)
    calibrate(head, x)
    y = head(x).detach()
    assert float(y.mean(0).abs().max()) < 0.2 * float(y.std(0).mean())


def test_batch_norm_statistics_are_those_of_the_features() -> None:
    head = RBFNProjectionHead(64, 64, 32, 2, num_kernels=16, residual=False)
    x = features(2048)
    calibrate(head, x).eval()
    hidden = head.layers[:2](x).detach()
    torch.testing.assert_close(hidden.mean(0), torch.zeros(64), atol=1e-4, rtol=0)
    torch.testing.assert_close(hidden.var(0), torch.ones(64), atol=1e-3, rtol=0)


def test_bare_layer_and_sequential() -> None:
    layer = RBFLayer(64, 16, 8)
    x = features()
    assert calibrate(layer, x) is layer
    calibrate(nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), RBFLayer(32, 16, 8)), x)


def test_fewer_samples_than_kernels_warns_and_works() -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=64)
    with pytest.warns(UserWarning, match="64 kernels with 20 samples"):
        calibrate(head, features(20))
    assert diagnose(head, features()).alive


def _rank(rank: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    head = calibrate(RBFNProjectionHead(64, 64, 32, num_kernels=16), features())
    torch.save(head.state_dict(), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_same_on_every_rank_though_heads_and_features_differ(tmp_path: Path) -> None:
    multiprocessing.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_head_that_ranks_cannot_exchange_is_named_and_left_alone(tmp_path: Path) -> None:
    """As under NCCL: this group, too, takes tensors of GPUs only."""
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("cuda:gloo", store, rank=0, world_size=1)
    try:
        head = RBFNProjectionHead(64, 64, 32, num_kernels=16)
        before = copy.deepcopy(head)
        with pytest.raises(ValueError, match=r"is on cpu, but .* on cuda .*head.to\('cuda'\)"):
            calibrate(head, features())
        assert states_equal(head, before)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.full((8, 64), torch.nan), "features: 512 of 512 values are NaN or inf"),
        (torch.rand(1, 64), "at least 2 samples are needed, not 1"),
        ([], "at least 2 samples are needed, not 0"),
        (torch.rand(8, 63), r"shape \(samples, 64\), not \(8, 63\)"),
        (torch.rand(64), r"shape \(samples, 64\), not \(64,\)"),
        (None, "must be a tensor or tensors, not NoneType"),
        (torch.ones(8, 64, dtype=torch.int64), "floating-point torch tensor, not torch.int64"),
        (["a"], "must be a floating-point torch tensor, not str"),
        (torch.ones(8, 64), "all 8 samples are the same"),
    ],
)
def test_bad_features_are_refused_before_anything_changes(bad, message: str) -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=4)
    before = copy.deepcopy(head)
    with pytest.raises(ValueError, match=message):
        calibrate(head, bad)
    assert states_equal(head, before)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_scales_beyond_float32_are_an_error_that_leaves_the_head_alone(scale: float) -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=4, batch_norm=False)
    before = copy.deepcopy(head)
    with pytest.raises(ValueError, match="flow: rescale the features"):
        calibrate(head, scale * features())
    assert states_equal(head, before)


@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.filterwarnings("ignore:calibrating")
def test_very_few_samples(samples: int, normalize: bool) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        head = RBFNProjectionHead(64, 64, 32, num_kernels=8, normalize=normalize)
        calibrate(head, features(samples))
        assert all(torch.isfinite(value).all() for value in head.state_dict().values())


def test_duplicated_samples() -> None:
    head = RBFNProjectionHead(64, 64, 32, num_kernels=16)
    calibrate(head, features(4).repeat(64, 1))
    assert all(torch.isfinite(value).all() for value in head.state_dict().values())


def test_frozen_parameters_stay() -> None:
    centers = torch.randn(8, 64)
    layer = RBFLayer(64, 8, 4, centers=centers, train_centers=False)
    shapes = layer.shapes.detach().clone()
    calibrate(layer, 30.0 * features())
    assert torch.equal(layer.centers, centers)
    assert not torch.equal(layer.shapes, shapes)


def test_endless_features_end() -> None:
    batch = features(1024)
    layer = RBFLayer(64, 8, 4)
    before = layer.centers.detach().clone()
    assert not torch.equal(calibrate(layer, itertools.repeat(batch)).centers, before)


def test_nested_heads_are_calibrated_throughout() -> None:
    inner = RBFNProjectionHead(64, 64, 32, 2, num_kernels=8, batch_norm=False)
    outer = RBFLayer(32, 8, 4)
    before = copy.deepcopy(nn.Sequential(inner, outer))
    calibrate(nn.Sequential(nn.Flatten(), inner, outer), features())
    for old, new in zip(before.modules(), nn.Sequential(inner, outer).modules()):
        if isinstance(old, RBFLayer):
            assert not torch.equal(old.centers, new.centers)


def test_heads_that_cannot_be_calibrated() -> None:
    with pytest.raises(ValueError, match="every RBF layer of the head is frozen"):
        calibrate(RBFLayer(64, 4, 4).requires_grad_(False), features())
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, not -1"):
        calibrate(RBFLayer(64, 4, 4), features(), seed=-1)
    with pytest.raises(ValueError, match="Sequential has no RBF layer"):
        calibrate(nn.Sequential(nn.Linear(64, 2)), features())
    with pytest.raises(ValueError, match="cannot walk through ModuleList"):
        calibrate(nn.ModuleList([RBFLayer(64, 4, 4)]), features())
    with pytest.raises(ValueError, match=r"float32 or float64 for this, not torch.bfloat16"):
        calibrate(RBFLayer(64, 4, 4).bfloat16(), features())
