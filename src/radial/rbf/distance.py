"""Distances between samples and centres without a B×K×D tensor.

Legend: B samples, K kernels, D features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from radial.rbf.functions import largest

DISTANCES = ("euclidean", "manhattan")

_MANHATTAN_ELEMENTS = 2**24  # of B×block×D, what torch.cdist's CUDA backward may allocate


class _SquaredEuclidean(torch.autograd.Function):
    """‖x_b − c_k‖² with the gradient written out.

    Autograd would give the same gradient from the same formula, but keeps the shifted
    copies of x and c and allocates each term of the sum; written out, forward and backward
    cost about what a linear layer of the same shape costs, in time and in memory.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, centers: Tensor) -> Tensor:
        return _matrix_product_form(x, centers)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (g,) = grads  # (B, K)
        x, c = _shift(*ctx.saved_tensors)
        by_sample, by_kernel = g.sum(1, keepdim=True), g.sum(0).unsqueeze(1)
        if torch.is_grad_enabled():  # a graph of the gradient itself needs x and c again
            grad_x = torch.addmm(x * by_sample, g, c, beta=2.0, alpha=-2.0)
            return grad_x, torch.addmm(c * by_kernel, g.T, x, beta=2.0, alpha=-2.0)
        if len(x) > len(c):  # otherwise the larger of the shifted copies becomes its gradient
            grad_c = (c * by_kernel).addmm_(g.T, x, beta=2.0, alpha=-2.0)
            return x.mul_(by_sample).addmm_(g, c, beta=2.0, alpha=-2.0), grad_c
        grad_x = (x * by_sample).addmm_(g, c, beta=2.0, alpha=-2.0)
        return grad_x, c.mul_(by_kernel).addmm_(g.T, x, beta=2.0, alpha=-2.0)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, c = _shift(*ctx.saved_tensors)
        dx, dc = (torch.zeros_like(p) if t is None else t for p, t in zip((x, c), tangents))
        own: Tensor = torch.linalg.vecdot(x, dx).unsqueeze(1) + torch.linalg.vecdot(c, dc)
        return 2.0 * (own - dx @ c.T - x @ dc.T)


def _shift(x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    mean = centers.mean(0)
    return x - mean, centers - mean


def squared_norm(x: Tensor) -> Tensor:
    """‖x‖² over the last dimension, without the tensor x·x."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norm.square()


def _matrix_product_form(x: Tensor, centers: Tensor) -> Tensor:
    x, c = _shift(x, centers)
    norms = squared_norm(x).unsqueeze(1) + squared_norm(c)
    return torch.addmm(norms, x, c.T, alpha=-2.0).clamp(min=0.0, max=largest(x))


def squared_euclidean(x: Tensor, centers: Tensor) -> Tensor:
    """‖x − c‖² for every sample and centre, (…, D) and (K, D) → (…, K).

    By matrix product, ‖x‖² − 2x·c + ‖c‖². That sum cancels badly where ‖x‖ ≫ ‖x − c‖, so
    both sides are first shifted by the mean centre m, on which distances do not depend. What
    remains is an absolute error of about eps·(‖x − m‖ + ‖c − m‖)²: relative to the size of
    the cloud of centres, not to its distance from the origin. Rounding below 0 is clamped, and
    overflow too.

    >>> squared_euclidean(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[25.]])
    """
    flat = x.reshape(-1, x.shape[-1])
    if torch.compiler.is_compiling():  # it fuses by itself, and takes no Function with a jvp
        squared = _matrix_product_form(flat, centers)
    else:
        squared = _SquaredEuclidean.apply(flat, centers)
    return squared.reshape(*x.shape[:-1], centers.shape[0])


def manhattan(x: Tensor, centers: Tensor) -> Tensor:
    """Σ|x − c| for every sample and centre, (…, D) and (K, D) → (…, K).

    ``torch.cdist`` needs no B×K×D tensor on the CPU but allocates one in its CUDA backward
    pass; going over the centres in blocks bounds that.
    """
    flat = x.reshape(-1, x.shape[-1])
    block = max(1, _MANHATTAN_ELEMENTS // max(1, flat.numel()))
    parts = [torch.cdist(flat, part, p=1.0) for part in torch.split(centers, block)]
    return torch.cat(parts, 1).reshape(*x.shape[:-1], centers.shape[0])
