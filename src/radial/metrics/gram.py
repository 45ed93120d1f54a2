"""Gram matrices of features and their spectra: what the scores of a spectrum share.

Legend: N samples, D features, k = min(N, D), R rows of a block; σ singular values of the features
Z (N, D) as they are, λ eigenvalues of their covariance (centred, 1/N), both descending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from radial.checks import check_finite, check_tensor

_BLOCK = 2**24  # bytes of a block of rows
_PANEL = 128  # columns of a Gram matrix at a time, on and right of the diagonal only
_LARGE = 2**34  # multiplications, from which on they are tried in float32
_FLOAT32_RANGE = 1e-12, 1e12  # of the root mean square
_RANGE = 1e-140, 1e140  # of the largest value: squares and their sums have to fit float64
_FLOAT32_RESOLVES = 1e-6  # smallest eigenvalue / largest
_FLOAT64_RESOLVES = 1e-11
_SMALL = 1e-8  # of the largest eigenvalue: where some are not resolved, all below are taken again
_ROUNDING = 1e-24  # a variance of so little of the squared mean


class Spectra:
    """Second-order statistics of features Z (N, D), computed when first asked for, and kept.

    The spectra are those of a Gram matrix, D×D or N×N, whichever is smaller, in float64 and
    summed over blocks of rows, from which the mean is taken first: a large mean does no harm.
    The Gram matrix of the features as they are follows by a term of rank one (D×D) or two (N×N).

    A Gram matrix squares the condition: its rounding, 1e-16 of the largest eigenvalue, is 1e-8 σ₁
    in a singular value that should be 0, and two thousand of these show in an entropy. Where its
    smallest eigenvalue is below 1e-11 of the largest, the rows are projected onto the
    eigenvectors below 1e-8, and these eigenvalues taken from the projections instead.

    Of large float32 features (N ≥ D, N·D² ≥ 2³⁴) the products are first taken in float32, and
    summed in float64 block by block. That is good enough for every score here to 1e-6 where
    the smallest eigenvalue is above 1e-6 of the largest; where it is not, float64 follows.

    Memory beside Z: a few k×k matrices and a block.

    Args:
        z: features (N, D).

    Raises:
        ValueError: another shape, NaN or inf, or values whose squares float64 cannot hold.

    Example:
        >>> found = Spectra(torch.diag(torch.tensor([3.0, 2.0])))
        >>> [round(value, 6) for value in found.singular.tolist()]
        [3.0, 2.0]
    """

    def __init__(self, z: Tensor) -> None:
        check_features(z)
        self.z = z.detach()
        self.n, self.d = z.shape

    @cached_property
    def mean(self) -> Tensor:
        """(D)."""
        return self._weighted_mean(torch.ones(self.n, dtype=torch.float64, device=self.z.device))

    @cached_property
    def singular(self) -> Tensor:
        """σ of Z as it is, (k)."""
        return self._gram.uncentred_eigenvalues.sqrt()

    @cached_property
    def eigenvalues(self) -> Tensor:
        """λ of the centred covariance, (k)."""
        return self._gram.centred_eigenvalues / self.n

    @property
    def constant(self) -> int:
        """How many of the D features are the same in all samples, to rounding."""
        return self.d - int(self._gram.varying.sum())

    @cached_property
    def squared_correlations(self) -> float:
        """Σ over i ≠ j of the squared correlation of features i and j, the constant left out."""
        return self._gram.squared_correlations()

    @cached_property
    def unit_mean(self) -> Tensor:
        """Of the rows brought to unit length, (D)."""
        return self._weighted_mean(self._inverse_lengths)

    @cached_property
    def unit_eigenvalues(self) -> Tensor:
        """λ of the rows brought to unit length, (k)."""
        return self._unit_gram.centred_eigenvalues / self.n

    @cached_property
    def squared_cosines(self) -> float:
        """Σ of cos² over all pairs of rows, each with itself too: ‖UᵀU‖²_F, U of unit rows."""
        return self._unit_gram.uncentred_squares()

    @cached_property
    def _gram(self) -> _Gram:
        return _Gram(self.z, self.mean)

    @cached_property
    def _unit_gram(self) -> _Gram:
        return _Gram(self.z, self.unit_mean, self._inverse_lengths)

    @cached_property
    def _inverse_lengths(self) -> Tensor:
        return lengths(self.z).reciprocal()

    def _weighted_mean(self, weights: Tensor) -> Tensor:
        total = torch.zeros(self.d, dtype=torch.float64, device=self.z.device)
        for x, w in zip(row_blocks(self.z), row_blocks(weights, self.d)):
            total += w @ x.double()
        return total / self.n


class _Gram:
    """Gram matrices of the rows of Z, times ``scale`` (N) if given, and their eigenvalues.

    Legend: A is Z where N ≥ D ("tall") and Zᵀ elsewhere; AᵀA is k×k.
    """

    def __init__(self, z: Tensor, mean: Tensor, scale: Tensor | None = None) -> None:
        self.z, self.mean, self.scale = z, mean, scale
        self.n, self.d = z.shape
        self.k, self.tall = min(z.shape), self.n >= self.d
        self.rank = min(self.n - 1, self.d)  # at most, without the mean
        self.dtype = product_dtype(z, scale) if self.tall else torch.float64

    @cached_property
    def centred(self) -> Tensor:
        return self._sum(self.dtype)

    def uncentred_squares(self) -> float:
        """Sum of the squared entries of the Gram matrix of the rows as they are."""
        if not self.tall:
            return float(self._add_mean(self.centred).square_().sum())
        mean, gram = self.mean, self.centred
        # ‖G + n m mᵀ‖² written out: no second k×k matrix for one number
        along, length = self.n * mean @ gram @ mean, self.n * mean @ mean
        return float(torch.linalg.vector_norm(gram).square() + 2.0 * along + length.square())

    @cached_property
    def varying(self) -> Tensor:
        """Which features are not the same in all samples, (D)."""
        if self.tall:
            return self.centred.diagonal() > 0.0
        squares = [x.square().sum(1) for x in self._blocks(torch.float64)]
        return torch.cat(squares) > _ROUNDING * self.n * self.mean.square()

    def squared_correlations(self) -> float:
        varying = self.varying.nonzero().squeeze(1)
        if self.tall:
            gram = _part(self.centred, varying)
            inverse = gram.diagonal().reciprocal()  # of the variances
            return float(inverse @ (gram.square() @ inverse)) - len(varying)
        # ‖SᵀS‖² = ‖SSᵀ‖² of the standardised features S (N, D)
        blocks = _Gram(self.z[:, varying], self.mean[varying])._blocks(torch.float64)
        unit = (x / torch.linalg.vector_norm(x, dim=1, keepdim=True) for x in blocks)
        return float(gram_matrix(unit, self.n, self.z.device).square_().sum()) - len(varying)

    @cached_property
    def centred_eigenvalues(self) -> Tensor:
        _, values = self._resolved
        return self._refine(values, centre=True)

    @cached_property
    def uncentred_eigenvalues(self) -> Tensor:
        gram, _ = self._resolved
        return self._refine(_eigenvalues(self._add_mean(gram)), centre=False)

    @cached_property
    def _resolved(self) -> tuple[Tensor, Tensor]:
        """The centred matrix, in float64 products if float32 ones do not resolve it, and its λ."""
        gram, values = self.centred, _eigenvalues(self.centred)[: self.rank]
        if self.dtype == torch.float64 or _above(_FLOAT32_RESOLVES, values):
            return gram, values
        # Below that, float32's rounding of the products is as large as what is left to measure
        gram = self._sum(torch.float64)
        return gram, _eigenvalues(gram)[: self.rank]

    def _refine(self, values: Tensor, *, centre: bool) -> Tensor:
        """k eigenvalues, 0 where none is given; those not resolved are taken from the rows."""
        if not _above(_FLOAT64_RESOLVES, values):
            gram, _ = self._resolved
            gram = gram if centre else self._add_mean(gram)
            alive = (
                gram.diagonal().nonzero().squeeze(1)
            )  # zero rows would be eigenvectors of 0, too
            every, vectors = torch.linalg.eigh(_part(gram, alive))
            # Projected, the rows have none of the large directions left whose rounding hid these
            basis = vectors[:, every < _SMALL * every[-1]]
            rows = (x[:, alive] @ basis for x in self._blocks(torch.float64, centre=centre))
            again = torch.linalg.eigvalsh(gram_matrix(rows, basis.shape[1], gram.device)).flip(0)
            kept = values[: len(every) - len(again)]
            values = torch.cat([kept, again])[: len(values)]
        # What should be 0 may come out as −1e-17, and has no root
        return torch.cat([values, values.new_zeros(self.k - len(values))]).clamp_(min=0.0)

    def _blocks(self, dtype: torch.dtype, *, centre: bool = True) -> Iterator[Tensor]:
        """Rows of A, less the mean, (R, k)."""
        mean = (self.mean if centre else torch.zeros_like(self.mean)).to(dtype)
        scale = None if self.scale is None else self.scale.to(dtype)[:, None]
        rows = max(1, _BLOCK // (dtype.itemsize * self.k))
        for start in range(0, max(self.n, self.d), rows):
            part = slice(start, start + rows)
            if self.tall:
                x = self.z[part].to(dtype)
                yield (x if scale is None else x * scale[part]) - mean
            else:
                x = self.z[:, part].to(dtype)
                yield ((x if scale is None else x * scale) - mean[part]).T

    def _sum(self, dtype: torch.dtype) -> Tensor:
        """The centred matrix; rows and columns that only rounding fills are 0."""
        squares = torch.zeros(self.k, dtype=torch.float64, device=self.z.device)
        gram = gram_matrix(_adding_squares(squares, self._blocks(dtype)), self.k, self.z.device)
        gram.diagonal().copy_(squares)  # in float32 their roundings can all be upwards
        limit = self.mean.square().sum()
        if self.tall:
            limit = self.n * self.mean.square()
            missed = self.mean - self.mean.to(dtype)  # by rounding the mean taken away
            gram.addr_(missed, missed, alpha=-float(self.n))
        constant = gram.diagonal() <= _ROUNDING * limit
        gram[constant] = 0.0
        gram[:, constant] = 0.0
        return gram

    def _add_mean(self, gram: Tensor) -> Tensor:
        if self.tall:
            return torch.addr(gram, self.mean, self.mean, alpha=float(self.n))
        along = torch.cat([x.double() @ self.mean for x in row_blocks(self.z)])
        if self.scale is not None:
            along *= self.scale
        return (gram + along).add_(along[:, None]).sub_(self.mean.square().sum())


def product_dtype(z: Tensor, scale: Tensor | None = None) -> torch.dtype:
    """float32 to try where z (N, D) is large and not float64 and its squares far from overflow.

    ``scale`` (N) is what rows are multiplied by.
    """
    if len(z) * z.shape[1] ** 2 < _LARGE or z.dtype == torch.float64:
        return torch.float64
    sizes = (torch.linalg.vector_norm(z) / z.numel() ** 0.5).double()
    if scale is not None:
        sizes = torch.stack([sizes, scale.max(), scale.min()])
    low, high = _FLOAT32_RANGE
    return torch.float32 if bool((sizes > low).all() and (sizes < high).all()) else torch.float64


def _eigenvalues(matrix: Tensor) -> Tensor:
    """Descending, without those of empty rows, which are 0."""
    filled = matrix.diagonal().nonzero().squeeze(1)
    values: Tensor = torch.linalg.eigvalsh(_part(matrix, filled))
    return values.flip(0)


def gram_matrix(blocks: Iterable[Tensor], size: int, device: torch.device) -> Tensor:
    """Σ XᵀX in float64 of blocks X (R, size), by the panels on and right of the diagonal."""
    gram = torch.zeros(size, size, dtype=torch.float64, device=device)
    for x in blocks:
        for start in range(0, size, _PANEL):
            gram[start : start + _PANEL, start:] += x[:, start : start + _PANEL].T @ x[:, start:]
    return gram.triu_().add_(gram.triu(1).T)


def _adding_squares(squares: Tensor, blocks: Iterable[Tensor]) -> Iterator[Tensor]:
    """The blocks as they are, with their sums of squares by column added on the way."""
    for block in blocks:
        for x in row_blocks(block):
            squares += x.to(torch.float64, copy=True).square_().sum(0)
        yield block


def _part(matrix: Tensor, index: Tensor) -> Tensor:
    return matrix if len(index) == len(matrix) else matrix[index][:, index]


def _above(limit: float, values: Tensor) -> bool:
    return not len(values) or bool(values[-1] > limit * values[0])


def row_blocks(z: Tensor, width: int | None = None, *, large: bool = False) -> tuple[Tensor, ...]:
    """Blocks of rows: large for matrix products, or so small that float64 copies cost little."""
    size = 8 * (width or z[0].numel())
    blocks: tuple[Tensor, ...] = z.split(max(1, (_BLOCK if large else _BLOCK // 4) // size))
    return blocks


def lengths(z: Tensor) -> Tensor:
    """‖z‖ of every row (N) in float64; a row without a direction is an error."""
    found = torch.cat([torch.linalg.vector_norm(x.double(), dim=-1) for x in row_blocks(z)])
    if zeros := int((found == 0.0).sum()):
        raise ValueError(f"{zeros} of {found.numel()} rows have length 0, and so no direction")
    return found


def check_features(z: Tensor, least: int = 2) -> None:
    """(N, D), floating point and finite."""
    check_tensor("features", z)
    if z.dim() != 2 or len(z) < least or z.shape[1] < 1:
        raise ValueError(f"features must have shape (N, D) with N ≥ {least}, not {tuple(z.shape)}")
    check_values("features", z)


def check_values(name: str, z: Tensor) -> None:
    """Finite, with squares that float64 can hold."""
    z = z.detach()
    if not bool(z.sum().isfinite()):  # quick, and never finite where a value is not
        check_finite(name, z)
    if z.dtype == torch.float64:
        low, high = _RANGE
        largest = float(torch.linalg.vector_norm(z, float("inf")))
        if largest and not low < largest < high:
            raise ValueError(f"{name}: the largest is {largest:g}, not 0 or {low:g} to {high:g}")


def as_spectra(z: Tensor | Spectra) -> Spectra:
    return z if isinstance(z, Spectra) else Spectra(z)
