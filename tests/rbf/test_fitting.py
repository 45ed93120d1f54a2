"""Placing centres, fitting shapes and weights: each against what it promises."""

from __future__ import annotations

import pytest
import torch

from radial.rbf.fitting import fit_shapes, fit_weights, orthogonal_rows, spread_out
from radial.rbf.functions import RADIAL_FUNCTIONS


@pytest.mark.parametrize(("rows", "columns"), [(8, 64), (64, 64), (5, 1), (200, 64)])
def test_orthogonal_rows_are_orthogonal_in_blocks(rows: int, columns: int) -> None:
    x = orthogonal_rows(rows, columns)
    assert x.shape == (rows, columns)
    block = x[: min(rows, columns)]
    gram = block @ block.T
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-3 * columns)
    assert len(torch.unique(x, dim=0)) == rows


def test_spread_out_takes_one_centre_from_each_of_well_separated_clusters(
    generator: torch.Generator,
) -> None:
    middles = 100.0 * torch.nn.functional.one_hot(torch.arange(8), 16).float()
    x = middles.repeat_interleave(50, 0) + 0.01 * torch.randn(400, 16)
    centers, owners = spread_out(x, 8, generator)
    assert sorted((owners // 50).tolist()) == list(range(8))
    assert torch.cdist(centers, middles).min(1).values.max() < 20.0


def test_spread_out_keeps_samples_in_one_dimension(generator: torch.Generator) -> None:
    x = torch.randn(20, 1)
    centers, owners = spread_out(x, 10, generator)
    torch.testing.assert_close(centers, x[owners])
    assert len(set(owners.tolist())) == 10


def test_spread_out_beyond_the_samples_jitters(generator: torch.Generator) -> None:
    x = torch.randn(10, 32)
    centers, owners = spread_out(x, 25, generator)
    assert centers.shape == (25, 32)
    assert owners.max() < 10
    assert len(torch.unique(centers, dim=0)) > 20


@pytest.mark.parametrize("name", list(RADIAL_FUNCTIONS))
def test_shapes_put_every_kernel_at_the_operating_point(name: str) -> None:
    squared = torch.rand(500, 6) * torch.logspace(-3, 3, 6)
    record = RADIAL_FUNCTIONS[name]
    u = squared * fit_shapes(record, squared, spread=False).square()
    torch.testing.assert_close(u.mean(0), torch.full((6,), record.operating_point))


@pytest.mark.parametrize("name", ["gaussian", "matern32", "matern52"])
@pytest.mark.parametrize("dimensions", [4, 256, 4096])
def test_spread_gives_log_activations_a_standard_deviation_of_one(
    name: str, dimensions: int
) -> None:
    x, c = torch.randn(128, dimensions), torch.randn(32, dimensions)
    squared = torch.cdist(x, c).square()
    record = RADIAL_FUNCTIONS[name]
    logits = record.log_fn(squared * fit_shapes(record, squared, spread=True).square())
    residual = logits - logits.mean(1, keepdim=True)
    assert float(residual.std()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("whiten", [False, True])
def test_weights_give_unit_variance_and_sum_to_zero(whiten: bool) -> None:
    phi = 0.4 + 0.01 * torch.randn(2000, 16) @ torch.diag(torch.logspace(-1, 1, 16))
    weights = fit_weights(torch.randn(64, 16), phi, whiten=whiten)
    y = phi @ weights.T
    assert float(y.var(0).mean()) == pytest.approx(1.0, rel=1e-3)
    assert float(y.mean(0).abs().max()) < 0.5  # of a constant part 0.4·Σ|w| ≫ 1
    torch.testing.assert_close(weights.sum(1), torch.zeros(64), rtol=0, atol=1e-3)


def test_whitening_flattens_the_spectrum() -> None:
    phi = torch.randn(4000, 16) @ torch.diag(torch.logspace(-1, 1, 16))
    plain, white = (fit_weights(orthogonal_rows(64, 16), phi, whiten=w) for w in (False, True))
    spreads = []
    for weights in (plain, white):
        values = torch.linalg.svdvals((phi - phi.mean(0)) @ weights.T)[:15]
        spreads.append(float(values[0] / values[14]))
    assert spreads[1] < 0.2 * spreads[0]


def test_one_kernel_is_not_centred_away() -> None:
    phi = torch.rand(100, 1)
    weights = fit_weights(torch.ones(3, 1), phi)
    assert float((phi @ weights.T).var(0).mean()) == pytest.approx(1.0, rel=1e-3)
