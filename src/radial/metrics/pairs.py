"""All pairs of samples, looked at once: what uniformity and TwoNN share.

Legend: N samples z of length l = ‖z‖, D features, u = z/l, ū the mean of the u, w = u − ū,
T rows and columns of a tile, k candidates.

    ‖u_i − u_j‖² = ‖w_i‖² + ‖w_j‖² − 2 w_i·w_j
    ‖z_i − z_j‖² = l_i l_j ‖u_i − u_j‖² + (l_i − l_j)²

The product is most of the work, N²D/2 multiplications; both follow from it. Taking ū away first
makes what is rounded small where directions are close, and the second line only adds.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from radial.metrics.gram import Spectra, lengths, row_blocks
from radial.rbf.distance import squared_norm

T = 2.0  # of uniformity, as published
_TILE = 1024  # 4 MiB in float32: a tile stays in the cache while it is looked at
_CANDIDATES = 3  # neighbours of each sample that are kept
_MARGIN = {torch.float32: 1e-5, torch.float64: 1e-13}  # a hundred times the rounding


class Pairs:
    """Looks at the pairs of z (N, D) when first asked, for both scores."""

    def __init__(self, z: Tensor) -> None:
        self.z = z.detach()

    @cached_property
    def seen(self) -> Seen:
        return look(self.z, t=T, neighbours=True)


class Seen(NamedTuple):
    potential: float  # Σ over i < j of exp(−t‖u_i − u_j‖²)
    candidates: Tensor  # (N, k) the nearest samples, about in order
    reach: Tensor  # (N,) no other sample is nearer than that, squared distance


def look(z: Tensor, *, t: float, neighbours: bool, wide: bool = False) -> Seen:
    """One pass over the tiles on and right of the diagonal; products in float64 if ``wide``.

    Without ``neighbours`` there are no candidates, and nothing is known of their reach.
    """
    n, device = len(z), z.device
    dtype = torch.float64 if wide or z.dtype == torch.float64 else torch.float32
    length, mean = lengths(z), Spectra(z).unit_mean
    largest = float(length.max())
    w = torch.empty_like(z, dtype=dtype)
    for part, x, own in zip(row_blocks(w), row_blocks(z), row_blocks(length, z.shape[1])):
        part.copy_(x.double() / own[:, None] - mean)
    norms = torch.cat([squared_norm(x.double()) for x in row_blocks(w)]).to(dtype)
    length = length / largest  # far from overflow in float32
    beyond = (length - length.mean()).to(dtype)  # their differences keep what is left
    near = length.to(dtype)
    k = min(_CANDIDATES, n - 1)
    best = torch.full((n, k), torch.inf, dtype=dtype, device=device)
    index = torch.zeros(n, k, dtype=torch.int64, device=device)

    def keep(rows: slice, squared: Tensor, first: int) -> None:
        found, at = squared.topk(min(k, squared.shape[1]), largest=False)
        values, order = torch.cat([best[rows], found], 1).topk(k, largest=False)
        best[rows] = values
        index[rows] = torch.cat([index[rows], at + first], 1).gather(1, order)

    potential = 0.0
    tiles = [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]
    for number, rows in enumerate(tiles):
        for columns in tiles[number:]:
            same = rows == columns
            squared = norms[rows, None] + norms[columns]
            squared.addmm_(w[rows], w[columns].T, alpha=-2.0).clamp_(min=0.0)
            e = (squared * -t).exp_()
            potential += float((e.triu_(1) if same else e).sum(1).double().sum())
            if not neighbours:
                continue
            apart = beyond[rows, None] - beyond[columns]
            squared.mul_(near[rows, None]).mul_(near[columns]).addcmul_(apart, apart)
            if same:
                squared.fill_diagonal_(torch.inf)
            keep(rows, squared, columns.start)
            if not same:
                keep(columns, squared.T.contiguous(), rows.start)
    size = near * norms.sqrt() + beyond.abs()
    reach = best[:, -1].double() * (1.0 - _MARGIN[dtype])
    reach -= _MARGIN[dtype] * (size * size.max()).double()
    if k == n - 1:
        reach.fill_(torch.inf)  # all others are candidates
    return Seen(potential, index, reach * largest**2)
