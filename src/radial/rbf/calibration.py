"""Set a head from features before training starts.

Legend: N samples, D features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import Generator, Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from radial.checks import check_finite, check_size, check_tensor
from radial.rbf.fitting import fit_weights, orthogonal_rows, spread_out
from radial.rbf.functions import squared_norm
from radial.rbf.layer import RBFLayer

MAX_SAMPLES = 8_192  # the estimates no longer improve with more
_ROUNDING = 64 * torch.finfo(torch.float32).eps ** 2  # of a squared length: what is left is noise


@torch.no_grad()
def calibrate(head: nn.Module, features: Tensor | Iterable[Tensor], *, seed: int = 0) -> nn.Module:
    """Set every RBF layer of a head from a batch (or batches) of backbone features.

    Layer by layer, each on what the calibrated layers before it give:

    - centres are samples, spread out as by k-means++ (jittered copies where there are fewer
      samples than kernels, with a warning), see `radial.rbf.fitting.spread_out`;
    - shapes follow from the distances, see `radial.rbf.fitting.fit_shapes`;
    - output weights are drawn anew, whitened and scaled to unit output variance, and the
      mean of the output is removed through the bias of the linear layer that follows, where
      it has one;
    - BatchNorm's running statistics become those of the features, so that the head works
      in eval mode at once.

    Call it once, before optimisers and momentum copies are made. Frozen parameters stay as
    they are, none is added, and an error leaves the head unchanged. At most the first
    8,192 samples are used. The result depends on the head, the features and the seed alone;
    under ``torch.distributed`` every rank must call it and gets rank 0's result.

    Args:
        head: an RBFLayer, an ``nn.Sequential`` with one, or a head whose ``.layers`` is one.
        features: (samples, D), or several of them one after the other.
        seed: of the choice of centres and of the output weights.

    Returns:
        The head itself.

    Raises:
        ValueError: nothing to calibrate, or features that do not fit, are not finite or do not
            vary; under ``torch.distributed`` a head where the ranks cannot exchange it.

    Example:
        >>> from radial import RBFNProjectionHead, calibrate
        >>> head = calibrate(RBFNProjectionHead(512, 512, 64), 100.0 * torch.rand(256, 512))
    """
    shared = distributed.is_available() and distributed.is_initialized()
    if shared:
        _check_device(head)
    calibrate_alone(head, features, seed=seed)
    if shared:
        for tensor in head.state_dict().values():
            distributed.broadcast(tensor, src=0)
    return head


def _check_device(head: nn.Module) -> None:
    """Whether the ranks can exchange the head: NCCL takes tensors of GPUs only."""
    served = [part.split(":")[0] for part in str(distributed.get_backend_config()).split(",")]
    for device in {tensor.device.type for tensor in head.state_dict().values()} - set(served):
        raise ValueError(
            f"the head is on {device}, but the ranks exchange tensors on {' or '.join(served)} "
            f"({distributed.get_backend()}): move it there first, head.to({served[0]!r})"
        )


@torch.no_grad()
def calibrate_alone(
    head: nn.Module, features: Tensor | Iterable[Tensor], *, seed: int = 0
) -> nn.Module:
    """`calibrate` on this rank, whatever other ranks do."""
    check_size("seed", seed, minimum=0)
    stages = sequence(head)
    layers = [stage for stage in stages if isinstance(stage, RBFLayer)]
    if not layers:
        raise ValueError(f"{type(head).__name__} has no RBF layer to calibrate")
    if not any(p.requires_grad for layer in layers for p in layer.parameters()):
        raise ValueError("every RBF layer of the head is frozen: nothing to calibrate")
    generator = Generator().manual_seed(seed)
    x = gather_features(features, head, generator)
    if bool((x == x[0]).all()):
        raise ValueError(f"all {len(x)} samples are the same: nothing to calibrate from")
    kernels = max(layer.num_kernels for layer in layers)
    if len(x) < kernels:
        warnings.warn(
            f"calibrating {kernels} kernels with {len(x)} samples: "
            "centres beyond one a sample are jittered copies; more features are better",
            stacklevel=3,
        )
    before = {name: value.clone() for name, value in head.state_dict().items()}
    try:
        _walk(stages, x, generator)
    except BaseException:
        head.load_state_dict(before)
        raise
    return head


def _walk(stages: list[nn.Module], x: Tensor, generator: Generator) -> None:
    after_rbf = False
    for stage in stages:
        if isinstance(stage, RBFLayer):
            x = _calibrate_layer(stage, x, generator)
            after_rbf = True
            continue
        if isinstance(stage, _BatchNorm):
            _set(stage.running_mean, x.mean(0))
            _set(stage.running_var, x.var(0))
        elif isinstance(stage, nn.Linear) and after_rbf:
            _set(stage.bias, -stage.weight @ x.mean(0))
        after_rbf = False
        training = stage.training
        x = stage.eval()(x)
        stage.train(training)


def _calibrate_layer(layer: RBFLayer, x: Tensor, generator: Generator) -> Tensor:
    """Set one layer from its inputs and return its outputs, both as if x were new to it.

    A sample that became a centre is at distance 0 from it, where new samples never are; that
    distance is replaced by the kernel's mean distance to the other samples.
    """
    typical = float(squared_norm(x - x.mean(0)).mean())
    if not 1e-30 < typical < 1e30:
        name = "underflow" if typical < 1.0 else "overflow"
        raise ValueError(f"squared distances of about {typical:.1g} {name}: rescale the features")
    # Without BatchNorm a linear layer's bias may be all that is left of tiny features.
    if typical <= _ROUNDING * float(squared_norm(x).mean()):
        raise ValueError("beside their mean, differences underflow: rescale the features")
    centers, owners = spread_out(x, layer.num_kernels, generator)
    _set(layer.kernels_centers, centers)
    squared = layer.squared_distances(x)
    if layer.kernels_centers.requires_grad and len(x) > 2:
        own = (owners.to(x.device), torch.arange(layer.num_kernels, device=x.device))
        squared[own] = (squared.sum(0) - squared[own]) / (len(x) - 1)
    _set(layer.log_shapes, layer.fitting_shapes(squared).log())
    phi = layer.activate(squared)
    weights = orthogonal_rows(layer.out_features, layer.num_kernels, generator).to(x)
    _set(layer.weights, fit_weights(weights, phi, whiten=True))
    return layer.read_out(phi, x)


def _set(target: Tensor | None, value: Tensor) -> None:
    """Copy, but not into what is missing (a bias, running statistics) or frozen."""
    frozen = isinstance(target, nn.Parameter) and not target.requires_grad
    if target is not None and not frozen:
        target.copy_(value)


def sequence(head: nn.Module) -> list[nn.Module]:
    """The stages of a head in the order they are applied, containers taken apart."""
    inner = getattr(head, "module", head)  # of DistributedDataParallel
    inner = getattr(inner, "layers", inner)
    if isinstance(inner, nn.Sequential):
        return [stage for child in inner for stage in sequence(child)]
    if inner is head and any(isinstance(m, RBFLayer) for m in head.children()):
        raise ValueError(
            f"cannot walk through {type(head).__name__}: expected an RBFLayer, an nn.Sequential, "
            "or a head whose .layers is one"
        )
    return [head]


def gather_features(
    features: Tensor | Iterable[Tensor], head: nn.Module, generator: Generator
) -> Tensor:
    """One checked N×D matrix in random order, of the first MAX_SAMPLES, as the head takes it."""
    parameter = next(head.parameters(), torch.empty(0))
    if parameter.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the head must be in float32 or float64 for this, not {parameter.dtype}")
    if not isinstance(features, Iterable):
        raise ValueError(f"features must be a tensor or tensors, not {type(features).__name__}")
    width = next((m.in_features for m in head.modules() if hasattr(m, "in_features")), None)
    batches, samples = [], 0
    for batch in [features] if isinstance(features, Tensor) else features:
        check_tensor("features", batch)
        if batch.dim() < 2 or (width is not None and batch.shape[-1] != width):
            shape = tuple(batch.shape)
            raise ValueError(f"features must have shape (samples, {width}), not {shape}")
        batches.append(batch.detach().flatten(0, -2).to(parameter))
        samples += len(batches[-1])
        if samples >= MAX_SAMPLES:
            break
    if samples < 2:
        raise ValueError(f"at least 2 samples are needed, not {samples}")
    x = torch.cat(batches)[:MAX_SAMPLES].clone()
    check_finite("features", x)
    return x[torch.randperm(len(x), generator=generator).to(x.device)]
