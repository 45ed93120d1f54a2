"""Parameter groups that treat RBF kernels as what they are: positions, not weights."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

_TOKENS = ("cls_token", "reg_token", "pos_embed")  # of ViTs: positions too
_KERNELS = {"kernels_centers": "centers", "log_shapes": "shapes"}

# Zero to any optimiser's arithmetic, yet not == 0: LightlySSL's LARS takes an exact 0 as the
# sign to leave out its trust scaling, and kernels would then move at the raw learning rate.
NO_DECAY_WITH_TRUST = 1e-30


def parameter_groups(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    kernel_lr_scale: float = 1.0,
    shape_lr_scale: float | None = None,
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser: weights, no_decay, centers, shapes; empty ones left out.

    Only weights decay. Biases and norms do not, as usual; centres and shapes do not either:
    decay would drag them to the origin and move SNS with no learning at all. Both keep the
    trust scaling of LARS and take ``lr · kernel_lr_scale``, shapes ``lr · shape_lr_scale``
    where that is given. Under plain SGD a centre in D dimensions, of length √D, moves about D
    times less in proportion than the weights of a linear layer: raise ``kernel_lr_scale``
    for kernels that learn, and leave ``shape_lr_scale`` near 1. Frozen parameters are left
    out, shared ones appear once.

    Args:
        model: head, backbone or both.
        lr: learning rate of the weights.
        weight_decay: of the weights alone.
        kernel_lr_scale: of centres and shapes, times ``lr``.
        shape_lr_scale: of shapes, where it is another one.

    Returns:
        Groups with ``name``, ``params``, ``lr`` and ``weight_decay``.

    Raises:
        ValueError: a rate that is negative or not finite.

    Example:
        >>> from radial import RBFNProjectionHead, parameter_groups
        >>> groups = parameter_groups(RBFNProjectionHead(64, 64, 32), lr=0.1, weight_decay=1e-4)
        >>> [(group["name"], len(group["params"])) for group in groups]
        [('weights', 3), ('no_decay', 4), ('centers', 1), ('shapes', 1)]
    """
    shape_lr_scale = kernel_lr_scale if shape_lr_scale is None else shape_lr_scale
    rates = {
        "lr": lr,
        "weight_decay": weight_decay,
        "kernel_lr_scale": kernel_lr_scale,
        "shape_lr_scale": shape_lr_scale,
    }
    for name, value in rates.items():
        if not 0.0 <= value < float("inf"):
            raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
    settings = {
        "weights": (lr, weight_decay),
        "no_decay": (lr, 0.0),
        "centers": (lr * kernel_lr_scale, NO_DECAY_WITH_TRUST),
        "shapes": (lr * shape_lr_scale, NO_DECAY_WITH_TRUST),
    }
    members: dict[str, list[nn.Parameter]] = {name: [] for name in settings}
    seen = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                members[_group(module, name)].append(parameter)
    return [
        {"name": name, "params": members[name], "lr": rate, "weight_decay": decay}
        for name, (rate, decay) in settings.items()
        if members[name]
    ]


def _group(module: nn.Module, name: str) -> str:
    if name in _KERNELS and hasattr(module, "kernels_centers"):
        return _KERNELS[name]
    if isinstance(module, NORMS) or name.endswith("bias") or name in _TOKENS:
        return "no_decay"
    return "weights"
