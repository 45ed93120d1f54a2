"""Label-free quality metrics: plain functions of tensors."""

from radial.metrics.kernels import sns

__all__ = ["sns"]
