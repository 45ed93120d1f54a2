"""Projection heads of checkpoints, rebuilt from their tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from radial.checkpoints import is_momentum_copy, part
from radial.checks import one_line
from radial.rbf.functions import RadialFunction, TensorFunction
from radial.rbf.layer import RBFLayer, deepest_rbf_layer

Radial = str | RadialFunction | TensorFunction
MOST_STAGES = 64  # of a head


def rebuild_head(
    state: Mapping[str, Tensor],
    features: int,
    radial_function: Radial = "gaussian",
    normalize: bool = False,
) -> tuple[nn.Module | None, tuple[str, ...]]:
    """A projection head in LightlySSL's layout, ``projection_head.layers.<i>.…``, from its tensors.

    Linear, BatchNorm and RBF layers are known by their tensors, a place without any is a ReLU.
    What tensors cannot tell is assumed, and said: the radial function, normalisation, and that a
    head with BatchNorm is radial's (residual), one without it the published. A head with more
    than such layers is left out: half of a head is another head.
    """
    prefix = _projection_prefix(state)
    if prefix is None:
        return None, ("no projection head in LightlySSL's layout: backbone only",)
    whole = part(state, prefix.removesuffix("layers."))
    tensors = part(whole, "layers.")
    places: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, rest = name.partition(".")
        places.setdefault(int(number), {})[rest] = value
    residual = any("running_mean" in found for found in places.values())
    try:
        if len(tensors) < len(whole) or max(places) > MOST_STAGES:
            raise ValueError("it has more than numbered layers")
        head = nn.Sequential(
            *(
                _stage(places.get(place, {}), residual, radial_function, normalize)
                for place in range(max(places) + 1)
            )
        )
        head.load_state_dict(tensors, strict=True)
        if bool(head.eval()(torch.zeros(1, features)).isnan().any()):
            raise ValueError("its output is NaN")
    except (RuntimeError, ValueError, KeyError) as error:
        return None, (f"the projection head was not rebuilt ({one_line(error)}): backbone only",)
    if deepest_rbf_layer(head) is None:
        return head, ("head rebuilt from its keys, with ReLU between its layers",)
    path = "with" if residual else "without"
    normal = "normalised" if normalize else "not normalised"
    kind = f"{radial_function}, {normal}, Euclidean, {path} residual path"
    return head, (f"head rebuilt from its keys as {kind}",)


def _projection_prefix(state: Mapping[str, Tensor]) -> str | None:
    """``model.projection_head.layers.`` where there is one head that is no momentum copy."""
    found = {m[1] for key in state if (m := re.match(r"(.*\bprojection_head\.layers\.)\d+\.", key))}
    own = sorted(name for name in found if not is_momentum_copy(name))
    return own[0] if own else None


def _stage(
    tensors: Mapping[str, Tensor], residual: bool, radial_function: Radial, normalize: bool
) -> nn.Module:
    if "kernels_centers" in tensors:
        kernels, width = tensors["kernels_centers"].shape
        out = len(tensors["weights"])
        return RBFLayer(
            width,
            kernels,
            out,
            radial_function=radial_function,
            normalize=normalize and (True if residual else "published"),
            residual=residual and out == width,
            init="paper",
        )
    if "running_mean" in tensors:
        affine = "weight" in tensors
        return nn.BatchNorm1d(len(tensors["running_mean"]), affine=affine)
    if "weight" in tensors and tensors["weight"].dim() == 2:
        out, width = tensors["weight"].shape
        return nn.Linear(width, out, bias="bias" in tensors)
    return nn.ReLU()
