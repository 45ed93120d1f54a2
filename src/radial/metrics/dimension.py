"""Intrinsic dimension: of the set that samples lie on, however many features they have.

Legend: N samples, D features; μ ratio of a sample's distances to its second
and first neighbour, F the distribution of the ratios; L(n) length of the tree of n samples.

Identical samples count once. Which direction is better has to be declared: for a few points, or
ones all equally far from each other, there is no number that would read as collapsed, so they
are an error.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from radial.checks import check_number, check_size
from radial.metrics.gram import Spectra, check_features, gram_matrix
from radial.metrics.hypersphere import Pairs
from radial.rbf.functions import squared_norm

_ELEMENTS = 2**21  # of a block of distances: 16 MiB in float64
_CANDIDATES = 8  # neighbours by float64 product; by difference the two nearest of them are taken
_TREE_SAMPLES = 4096  # at most
_TREE_SIZES = [2.0 ** (i / 2 - 3) for i in range(7)]  # of the samples: an eighth to all
_TREE_DRAWS = 4


def two_nn(z: Tensor | Pairs, *, discard: float = 0.1) -> float:
    """TwoNN: slope of −log(1 − F(μ)) on log μ, by least squares through the origin.

    Facco et al., 2017, https://doi.org/10.1038/s41598-017-11873-y. F = i/N at the i-th smallest
    ratio. The largest ``discard`` share of the ratios is left out; the largest always is, as
    1 − F is 0 there. All N² distances are looked at, by float32 matrix products that find
    candidates and again by float64 ones where these leave doubt; the distances that count are
    float64 differences.

    Args:
        z: features (N, D), or `radial.metrics.hypersphere.Pairs` of them, which uniformity
            shares.
        discard: share of the largest ratios that is left out.

    Returns:
        The dimension, above 0.

    Raises:
        ValueError: fewer than three different samples, or neighbours all equally far.

    Example:
        >>> line = torch.rand(2000, 1, generator=Generator().manual_seed(0)) * torch.ones(5)
        >>> 0.9 < two_nn(line) < 1.1
        True
    """
    pairs = z if isinstance(z, Pairs) else None
    rows = z.z if isinstance(z, Pairs) else z
    check_features(rows, least=3)
    check_number("discard", discard, high=0.9)
    different = distinct(rows, least=3)
    if pairs is None or len(different) < len(rows):
        pairs = Pairs(different)
    first, second = _two_nearest(pairs).unbind(1)
    n = len(different)
    kept = max(1, min(int(n * (1.0 - discard)), n - 1))
    x = (second / first).log().sort().values[:kept]
    share = torch.arange(1, kept + 1, dtype=torch.float64, device=x.device) / n
    if not x[-1] > 0.0:
        raise ValueError(f"the two nearest neighbours of {kept} samples are equally far: no slope")
    return float(-(1.0 - share).log() @ x / (x @ x))


def mst_dimension(z: Tensor, *, seed: int = 0) -> float:
    """d = 1/(1 − s), s the slope of log L(n) on log n, L(n) of Euclidean minimum spanning trees.

    After Costa & Hero, 2004, https://doi.org/10.1109/TSP.2004.831130, who build the trees on
    geodesic distances: L(n) of n samples of a set of dimension d grows as n^((d−1)/d). Here n
    goes from an eighth to all of at most 4,096 samples, in seven steps, and log L(n) is the mean
    over four draws of nested random parts; the trees are exact (Prim). ``seed`` draws all.

    Low for large d: in a cube of 5 dimensions about 4.7, of 20 about 15. So compare only values
    from equally many samples. Used on representations by IdEst, 2026,
    https://arxiv.org/abs/2606.03338.

    Args:
        z: features (N, D).
        seed: draws the samples and their parts.

    Returns:
        The dimension, at least 1 where the trees grow at all.

    Raises:
        ValueError: fewer than 32 different samples, or trees that grow as fast as n.

    Example:
        >>> square = torch.rand(1000, 2, generator=Generator().manual_seed(0))
        >>> 1.8 < mst_dimension(square) < 2.2
        True
    """
    check_features(z)
    check_size("seed", seed, minimum=0)
    z = distinct(z, least=32)
    generator = Generator().manual_seed(seed)
    order = torch.randperm(len(z), generator=generator)[:_TREE_SAMPLES]
    x = z[order.to(z.device)].double()
    x -= x.mean(0)
    norms = squared_norm(x)
    product = gram_matrix([x.T], len(x), x.device)  # symmetric: half of the work
    distances = (norms[:, None] + norms).sub_(product, alpha=2.0).clamp_(min=0.0).sqrt_()
    rows = distances.cpu().numpy()  # NumPy has the quicker small steps, and picks columns quicker
    sizes = [round(len(x) * share) for share in _TREE_SIZES]
    whole = math.log(_tree_length(rows))  # of every draw
    log_length = torch.zeros(len(sizes), dtype=torch.float64)
    for _ in range(_TREE_DRAWS):
        draw = torch.randperm(len(x), generator=generator)[: sizes[-2]].numpy()
        drawn = rows[draw].take(draw, 1)  # the smaller parts begin it
        lengths = [math.log(_tree_length(drawn[:n, :n])) for n in sizes[:-1]]
        log_length += torch.tensor([*lengths, whole], dtype=torch.float64) / _TREE_DRAWS
    log_n = torch.tensor(sizes, dtype=torch.float64).log()
    log_n -= log_n.mean()
    slope = float(log_n @ log_length / (log_n @ log_n))
    if slope >= 1.0:
        raise ValueError(f"the trees grow as n^{slope:.4g}: the samples fill no finite dimension")
    return 1.0 / (1.0 - slope)


def distinct(z: Tensor, least: int) -> Tensor:
    """Identical rows once, in an order that does not depend on the one they came in."""
    rows: Tensor = torch.unique(z.detach(), dim=0)
    if len(rows) < least:
        raise ValueError(f"{least} different samples are needed, but of {len(z)} {len(rows)} are")
    return rows


def _two_nearest(pairs: Pairs) -> Tensor:
    """Distances to the nearest and second nearest other row, (N, 2), in float64."""
    z = pairs.z
    n, d = z.shape
    found = torch.empty(n, 2, dtype=torch.float64, device=z.device)
    todo = torch.arange(n, device=z.device)
    if bool((z != 0.0).any(1).all()):  # a row of length 0 has no direction: it takes part below
        seen = pairs.seen
        for rows in todo.split(max(1, _ELEMENTS // (seen.candidates.shape[1] * d))):
            exact = squared_norm(z[rows, None].double() - z[seen.candidates[rows]])
            found[rows] = exact.sort().values[:, :2].sqrt()
        todo = todo[~(found[:, 1].square() <= seen.reach)]
    if not len(todo):
        return found
    x, candidates = z.double() - Spectra(z).mean, min(_CANDIDATES, n - 1)
    norms = squared_norm(x)
    for rows in todo.split(max(1, _ELEMENTS // max(n, candidates * d))):
        product = (norms[rows, None] + norms).addmm_(x[rows], x.T, alpha=-2.0)
        product[torch.arange(len(rows)), rows] = torch.inf
        index = product.topk(candidates, largest=False).indices
        exact = squared_norm(z[rows, None].double() - z[index])
        found[rows] = exact.sort().values[:, :2].sqrt()
    return found


def _tree_length(rows: NDArray[np.float64]) -> float:
    """Of the minimum spanning tree of distances (n, n), by Prim's algorithm."""
    inside = np.zeros(len(rows))
    inside[0] = np.inf
    nearest = rows[0] + inside  # from the tree to each sample that is not in it yet
    total = 0.0
    for _ in range(len(rows) - 1):
        new = int(nearest.argmin())
        total += float(nearest[new])
        inside[new] = np.inf
        np.minimum(nearest, rows[new], out=nearest)
        np.maximum(nearest, inside, out=nearest)
    return total
