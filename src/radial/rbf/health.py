"""Is a head alive? Measured on features, before training or at any time during it.

Legend: N samples, D features, K kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from radial import verdicts
from radial.rbf.calibration import gather_features
from radial.rbf.layer import RBFLayer

_RESOLUTION = torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerHealth:
    """One RBF layer on the features that reach it."""

    name: str
    in_features: int
    scaled_distance: float  # median of εr
    dead_kernels: float  # fraction that neither varies nor can be moved, to float resolution
    saturated: bool  # one and the same kernel takes every sample
    init: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """What `diagnose` found; print it for a table."""

    status: str  # alive, dead, saturated, constant, collapsed or broken
    verdict: str  # one line, with the fix where one is needed
    samples: int
    layers: tuple[LayerHealth, ...]
    relative_variance: float  # total variance of the output / its mean square
    effective_rank: float  # exp of the entropy of the centred output's singular values
    mean_cosine: float  # between outputs of different samples
    gradient_gain: float  # from the unit-length output to the input, see gradient_gain()
    mlp_gradient_gain: float  # the same for an MLP of the same shape

    @property
    def alive(self) -> bool:
        return self.status == verdicts.ALIVE

    @property
    def dead_kernels(self) -> float:
        """Of the worst layer."""
        return max((layer.dead_kernels for layer in self.layers), default=0.0)

    @property
    def saturated_layers(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers if layer.saturated)

    def __str__(self) -> str:
        rows = [
            ("samples", f"{self.samples}"),
            ("dead kernels", f"{self.dead_kernels:.0%}"),
            ("saturated layers", ", ".join(self.saturated_layers) or "none"),
            ("relative variance of the output", f"{self.relative_variance:.3g}"),
            ("effective rank of the output", f"{self.effective_rank:.1f}"),
            ("mean cosine between samples", f"{self.mean_cosine:.3f}"),
            ("gradient gain to the input", f"{self.gradient_gain:.3g}"),
            ("  of an MLP of the same shape", f"{self.mlp_gradient_gain:.3g}"),
        ]
        for layer in self.layers:
            place = f"{layer.scaled_distance:.3g} in {layer.in_features} dimensions"
            rows.append((f"  {layer.name}: median εr", place))
        width = max(len(name) for name, _ in rows)
        return "\n".join([self.verdict, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def diagnose(head: nn.Module, features: Tensor | Iterable[Tensor]) -> HealthReport:
    """Check a head on backbone features, in its present mode; the head is left unchanged.

    Works on any module, RBFN or not; the figures of kernels are there where RBF layers are.

    Args:
        head: features to embeddings.
        features: of the backbone, (N, D), or batches of them.

    Returns:
        A report; ``print`` it, or read ``status`` and ``verdict``.

    Raises:
        ValueError: features that are not (N, D) and finite, or too few of them.

    Example:
        >>> from radial import RBFNProjectionHead, diagnose
        >>> head = RBFNProjectionHead.paper(2048, 2048, 128, num_kernels=128)
        >>> diagnose(head, torch.rand(64, 2048)).status
        'dead'
    """
    with torch.inference_mode(False):  # gradients are needed, whoever calls
        x = gather_features(features, head, Generator().manual_seed(0))
        head = copy.deepcopy(head)
        inputs: dict[str, tuple[RBFLayer, Tensor]] = {}
        for name, module in head.named_modules():
            if isinstance(module, RBFLayer):
                module.register_forward_hook(_keep_input(inputs, name or "layer"))
        gain = gradient_gain(head, x)
        with torch.no_grad():
            output = head(x)
        layers = tuple(_layer_health(name, layer, h) for name, (layer, h) in inputs.items())
        figures = _output_figures(output)
        status, verdict = _verdict(layers, output, **figures)
        return HealthReport(
            status=status,
            verdict=verdict,
            samples=len(x),
            layers=layers,
            gradient_gain=gain,
            mlp_gradient_gain=gradient_gain(mlp_twin(head), x),
            **figures,
        )


def _keep_input(inputs: dict[str, tuple[RBFLayer, Tensor]], name: str) -> Any:
    def hook(layer: RBFLayer, args: tuple[Tensor], output: Tensor) -> None:
        inputs[name] = (layer, args[0].detach().reshape(-1, layer.in_features))

    return hook


def gradient_gain(module: nn.Module, x: Tensor, *, unit_length: bool = True) -> float:
    """‖Jᵀg‖ / ‖g‖ for a random g, J the derivative of the output by the input x.

    By default of the output brought to unit length, which is what all the losses of
    contrastive and predictive learning see; then the scale of a head does not matter.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = module(x)
        cotangent = torch.randn(y.shape, generator=Generator().manual_seed(0)).to(y)
        (grad,) = torch.autograd.grad(F.normalize(y, dim=-1) if unit_length else y, x, cotangent)
    return float(grad.norm() / cotangent.norm())


def mlp_twin(head: nn.Module) -> nn.Module:
    """A freshly initialised copy with ReLU where the RBF layers were; the same every time.

    In training mode: its BatchNorm has seen nothing yet.
    """
    twin = copy.deepcopy(head).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if isinstance(twin, RBFLayer):
            d, k, out = twin.in_features, twin.num_kernels, twin.out_features
            return nn.Sequential(nn.Linear(d, k), nn.ReLU(), nn.Linear(k, out)).to(twin.weights)
        for module in list(twin.modules()):
            for name, child in module.named_children():
                if isinstance(child, RBFLayer):
                    setattr(module, name, nn.ReLU())
                elif callable(reset := getattr(child, "reset_parameters", None)):
                    reset()
    return twin


@torch.no_grad()
def _layer_health(name: str, layer: RBFLayer, x: Tensor) -> LayerHealth:
    u = layer.squared_distances(x) * layer.shapes.square()  # (N, K)
    phi = layer.activations(x).abs()
    with torch.enable_grad():
        leaf = u.requires_grad_()
        (slope,) = torch.autograd.grad(layer.function.fn(leaf).sum(), leaf)
    moves = (2.0 * u * slope).abs()  # |∂φ/∂log ε|: what a relative change of distance does
    varies = phi.amax(0) - phi.amin(0)
    dead = (varies < _RESOLUTION) & (moves.amax(0) < _RESOLUTION)
    top = (phi / phi.sum(1, keepdim=True).clamp(min=torch.finfo(phi.dtype).tiny)).max(1)
    one_kernel = bool((top.indices == top.indices[0]).all())
    return LayerHealth(
        name=name,
        init=layer.init,
        in_features=layer.in_features,
        scaled_distance=float(u.sqrt().median()),
        dead_kernels=float(dead.float().mean()),
        saturated=layer.num_kernels > 1
        and one_kernel
        and bool((top.values > verdicts.TAKES_ALL).all()),
    )


def _output_figures(y: Tensor) -> dict[str, float]:
    y = y.detach().cpu().double().reshape(-1, y.shape[-1])
    centred = y - y.mean(0)
    variance = float(centred.square().sum() / y.square().sum().clamp(min=torch.finfo(y.dtype).tiny))
    unit = F.normalize(y, dim=1)
    n = len(y)
    cosine = float((unit.sum(0).square().sum() - unit.square().sum()) / (n * (n - 1)))
    rank = effective_rank(centred) if bool(torch.isfinite(centred).all()) else float("nan")
    return {"relative_variance": variance, "effective_rank": rank, "mean_cosine": cosine}


def effective_rank(x: Tensor) -> float:
    """exp of the entropy of the normalised singular values (Roy & Vetterli, 2007)."""
    values = torch.linalg.svdvals(x)
    p = values / values.sum().clamp(min=torch.finfo(x.dtype).tiny)
    return float(torch.special.entr(p).sum().exp())


def _verdict(
    layers: tuple[LayerHealth, ...],
    output: Tensor,
    *,
    relative_variance: float,
    effective_rank: float,
    mean_cosine: float,
) -> tuple[str, str]:
    """The status, and it in one line, with the fix."""
    worst = max(layers, key=lambda layer: layer.dead_kernels, default=None)
    taken = [layer.name for layer in layers if layer.saturated]
    width = output.shape[-1]
    status = verdicts.head_status(
        finite=bool(torch.isfinite(output).all()),
        saturated=bool(taken),
        dead_kernels=worst.dead_kernels if worst else 0.0,
        relative_variance=relative_variance,
        effective_rank=effective_rank,
        possible_rank=min(output.numel() // width - 1, width),
    )
    line = ""
    if status == verdicts.BROKEN:
        line = ": the output has NaN or inf; lower the learning rate"
    elif status == verdicts.SATURATED:
        line = f": one kernel of {taken[0]} takes all; call calibrate()"
    elif status == verdicts.DEAD and worst:
        place = f"εr ≈ {worst.scaled_distance:.3g} in {worst.in_features} dimensions"
        fix = "call calibrate()" + (" or use init='scaled'" if worst.init != "scaled" else "")
        line = f": {place}; {fix}"
    elif status == verdicts.CONSTANT:
        size = f"the output varies by {relative_variance:.1g} of its mean square"
        line = f": {size}; check the features, then call calibrate()"
    elif status == verdicts.COLLAPSED:
        rank = f"the output has effective rank {effective_rank:.2f} of {width}"
        line = f": {rank}; call calibrate() or use BatchNorm"
    elif worst and worst.dead_kernels > 0.0:
        share = f"{worst.dead_kernels:.0%} of the kernels of {worst.name} are dead"
        line = f", but {share}; call calibrate()"
    return status, status + line
