"""Parameter groups that treat RBF kernels as what they are: positions, not weights."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from radial.layer import RBFLayer

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

# Zero to any optimiser's arithmetic, yet not == 0: LightlySSL's LARS takes an exact 0 as the
# sign to leave out its trust scaling, and kernels would then move at the raw learning rate.
NO_DECAY_WITH_TRUST = 1e-30


def parameter_groups(
    model: nn.Module, *, lr: float, weight_decay: float, kernel_lr_scale: float = 1.0
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser: "weights", "no_decay" and "kernels", empty ones left out.

    Only weights decay. Biases and norms do not, as usual; centres and shapes do not either:
    decay would drag them to the origin and move SNS with no learning at all. Kernels keep
    the trust scaling of LARS and take ``lr · kernel_lr_scale``. Frozen parameters are left
    out, shared ones appear once.

    >>> from radial import RBFNProjectionHead, parameter_groups
    >>> groups = parameter_groups(RBFNProjectionHead(64, 64, 32), lr=0.1, weight_decay=1e-4)
    >>> [(group["name"], len(group["params"])) for group in groups]
    [('weights', 5), ('no_decay', 6), ('kernels', 4)]
    """
    for name, value in {
        "lr": lr,
        "weight_decay": weight_decay,
        "kernel_lr_scale": kernel_lr_scale,
    }.items():
        if not 0.0 <= value < float("inf"):
            raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
    groups: dict[str, dict[str, Any]] = {
        "weights": {"params": [], "lr": lr, "weight_decay": weight_decay},
        "no_decay": {"params": [], "lr": lr, "weight_decay": 0.0},
        "kernels": {"params": [], "lr": lr * kernel_lr_scale, "weight_decay": NO_DECAY_WITH_TRUST},
    }
    seen = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                groups[_group(module, name)]["params"].append(parameter)
    return [{"name": name, **group} for name, group in groups.items() if group["params"]]


def _group(module: nn.Module, name: str) -> str:
    if isinstance(module, RBFLayer) and name in ("kernels_centers", "log_shapes"):
        return "kernels"
    if isinstance(module, NORMS) or name.endswith("bias"):
        return "no_decay"
    return "weights"
