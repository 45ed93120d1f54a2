"""Set a head from features before training starts.

Legend: N samples, D features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import Generator, Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from radial.checks import check_finite
from radial.fitting import fit_weights, orthogonal_rows, spread_out
from radial.layer import RBFLayer

MAX_SAMPLES = 8_192  # more are thinned out by the seed: the estimates no longer improve


@torch.no_grad()
def calibrate(head: nn.Module, features: Tensor | Iterable[Tensor], *, seed: int = 0) -> nn.Module:
    """Set every RBF layer of a head from a batch (or batches) of backbone features.

    Layer by layer, each on what the calibrated layers before it give:

    - centres are samples, spread out as by k-means++ (jittered copies where there are fewer
      samples than kernels, with a warning), see :func:`radial.fitting.spread_out`;
    - shapes follow from the distances, see :func:`radial.fitting.fit_shapes`;
    - output weights are drawn anew, whitened and scaled to unit output variance, and the
      mean of the output is removed through the bias of the linear layer that follows, where
      it has one;
    - BatchNorm's running statistics become those of the features, so that the head works
      in eval mode at once.

    Call it once, before optimisers and momentum copies are made. The result depends on the
    head, the features and the seed alone; under ``torch.distributed`` rank 0's is sent to
    all. No parameter is added. Returns the head.

    >>> from radial import RBFNProjectionHead, calibrate
    >>> head = calibrate(RBFNProjectionHead(512, 512, 64), 100.0 * torch.rand(256, 512))
    """
    stages = sequence(head)
    if not any(isinstance(stage, RBFLayer) for stage in stages):
        raise ValueError(f"{type(head).__name__} has no RBF layer to calibrate")
    generator = Generator().manual_seed(seed)
    x = gather_features(features, head, generator)
    if bool((x == x[0]).all()):
        raise ValueError(f"all {len(x)} samples are the same: nothing to calibrate from")
    kernels = max(stage.num_kernels for stage in stages if isinstance(stage, RBFLayer))
    if len(x) < kernels:
        warnings.warn(
            f"calibrating {kernels} kernels with {len(x)} samples: "
            "centres beyond one a sample are jittered copies; more features are better",
            stacklevel=2,
        )
    after_rbf = False
    for stage in stages:
        if isinstance(stage, RBFLayer):
            x = _calibrate_layer(stage, x, generator)
            after_rbf = True
            continue
        if isinstance(stage, _BatchNorm):
            _copy(stage.running_mean, x.mean(0))
            _copy(stage.running_var, x.var(0))
        elif isinstance(stage, nn.Linear) and after_rbf:
            _copy(stage.bias, -stage.weight @ x.mean(0))
        after_rbf = False
        training = stage.training
        x = stage.eval()(x)
        stage.train(training)
    if distributed.is_available() and distributed.is_initialized():
        for tensor in head.state_dict().values():
            distributed.broadcast(tensor, src=0)
    return head


def _calibrate_layer(layer: RBFLayer, x: Tensor, generator: Generator) -> Tensor:
    """Set one layer from its inputs and return its outputs, both as if x were new to it.

    A sample that became a centre is at distance 0 from it, where new samples never are; that
    distance is replaced by the kernel's mean distance to the other samples.
    """
    centers, owners = spread_out(x, layer.num_kernels, generator)
    layer.kernels_centers.copy_(centers)
    squared = layer.squared_distances(x)
    own = (owners.to(x.device), torch.arange(layer.num_kernels, device=x.device))
    squared[own] = (squared.sum(0) - squared[own]) / (len(x) - 1)
    layer.log_shapes.copy_(layer.fitting_shapes(squared).log())
    phi = layer.activate(squared)
    weights = orthogonal_rows(layer.out_features, layer.num_kernels, generator).to(x)
    layer.weights.copy_(fit_weights(weights, phi, whiten=True))
    return layer.read_out(phi, x)


def _copy(target: Tensor | None, value: Tensor) -> None:
    if target is not None:  # BatchNorm without running statistics, Linear without bias
        target.copy_(value)


def sequence(head: nn.Module) -> list[nn.Module]:
    """The stages of a head in the order they are applied."""
    inner = getattr(head, "layers", head)
    if isinstance(inner, nn.Sequential):
        return list(inner)
    if isinstance(head, RBFLayer):
        return [head]
    raise ValueError(
        f"cannot walk through {type(head).__name__}: expected an RBFLayer, an nn.Sequential, "
        "or a head whose .layers is one"
    )


def gather_features(
    features: Tensor | Iterable[Tensor], head: nn.Module, generator: Generator
) -> Tensor:
    """One checked N×D matrix in random order, at most MAX_SAMPLES long, as the head takes it."""
    parameter = next(head.parameters())
    if parameter.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the head must be in float32 or float64 for this, not {parameter.dtype}")
    width = next((m.in_features for m in head.modules() if hasattr(m, "in_features")), None)
    batches = [features] if isinstance(features, Tensor) else list(features)
    for batch in batches:
        if not isinstance(batch, Tensor):
            raise ValueError(f"features must be tensors, not {type(batch).__name__}")
        if batch.dim() < 2 or (width is not None and batch.shape[-1] != width):
            shape = tuple(batch.shape)
            raise ValueError(f"features must have shape (samples, {width}), not {shape}")
    samples = sum(batch[..., 0].numel() for batch in batches)
    if samples < 2:
        raise ValueError(f"at least 2 samples are needed, not {samples}")
    x = torch.cat([batch.detach().flatten(0, -2).to(parameter) for batch in batches])
    check_finite("features", x)
    order = torch.randperm(samples, generator=generator)[:MAX_SAMPLES]
    return x[order.to(x.device)]
