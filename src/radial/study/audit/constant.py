"""The loss of a constant output: what a run that learns nothing ends at. Light: no pandas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

# The loss c of a constant output, and how near to it a loss L counts as being at it.
#   above: L ≥ c − margin, where a run that trains stays below c
#   below: L ≤ c + margin, where c is the smallest loss there is, the trivial solution
#   at:    |L − c| ≤ margin · c, where a run that trains may be above c as well
MARGINS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "simclr": ("above", 1e-3),  # c = ln(2B − 1)
        "moco": ("above", 0.03),  # c = ln(Q + 1)
        "swav": ("above", 0.01),  # c = ln P
        "byol": ("below", 5e-4),  # c = −1
        "simsiam": ("below", 5e-4),  # c = −1
        "barlow_twins": ("at", 1e-3),  # c = D
        "vicreg": ("at", 1e-3),  # c = 25 (1 − √10⁻⁴)
    }
)


def constant_loss(
    method: str,
    *,
    batch_size: float | None = None,
    queue_size: float | None = None,
    prototypes: float | None = None,
    output_dim: float | None = None,
) -> float | None:
    """The loss when every embedding is the same, or None where it cannot be known.

    SimCLR ln(2B − 1), MoCo ln(Q + 1), SwAV ln P: all candidates equally likely. BYOL and SimSiam
    −1: all cosines are 1. Barlow Twins D: no correlations. VICReg 25 (1 − √10⁻⁴): no variance.

    >>> constant_loss("simclr", batch_size=2048)
    8.31752199628717
    """
    if method in ("byol", "simsiam"):
        return -1.0
    if method == "vicreg":
        return 24.75
    sizes = {
        "simclr": batch_size,
        "moco": queue_size,
        "swav": prototypes,
        "barlow_twins": output_dim,
    }
    size = sizes.get(method)
    if size is None or math.isnan(size) or size < 1:
        return None
    candidates = {"simclr": 2 * size - 1, "moco": size + 1, "swav": size}
    return float(size) if method == "barlow_twins" else math.log(candidates[method])


def is_constant(method: str, loss: float, constant: float) -> bool:
    """Whether a loss is that of a constant output, by :data:`MARGINS`; not where one is NaN."""
    kind, margin = MARGINS.get(method, ("", 0.0))
    if kind == "above":
        return loss >= constant - margin
    if kind == "below":
        return loss <= constant + margin
    return kind == "at" and abs(loss - constant) <= margin * abs(constant)
