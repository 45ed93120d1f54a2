"""RBFN heads in the form of LightlySSL's, and the default heads they replace.

Legend: D = hidden_dim, K = num_kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal

from lightly.models.modules import heads as lightly_heads
from lightly.models.modules.heads import ProjectionHead
from torch import nn

from radial.checks import check_choice, check_size
from radial.rbf.functions import RadialFunction, TensorFunction
from radial.rbf.layer import RBFLayer

Radial = str | RadialFunction | TensorFunction
Normalize = bool | Literal["published"]
Block = tuple[int, int, nn.Module | None, nn.Module | None]

PUBLISHED: dict[str, Any] = {"normalize": "published", "residual": False, "init": "paper"}


class RBFNProjectionHead(ProjectionHead):
    """[Linear → BatchNorm → RBF] × (num_layers − 1) → Linear → BatchNorm.

    A drop-in replacement for LightlySSL's projection heads, with their leading arguments.
    ``num_layers`` counts as theirs does: one linear layer each, all but the last followed by
    an RBF layer of K kernels in ``hidden_dim`` dimensions. For the options see
    :class:`radial.RBFLayer`. The head is alive as it is; :func:`radial.calibrate` sets it from
    real features and is worth its second, above all without BatchNorm.

    Unlike the published head it has BatchNorm and a residual path, x + RBF(x), by default:
    in short runs from scratch a plain live RBFN head came out about as good as a linear
    head, with the residual path about as good as an MLP.

    >>> import torch
    >>> RBFNProjectionHead(512, 256, 64)(torch.randn(8, 512)).shape
    torch.Size([8, 64])
    """

    def __init__(
        self,
        input_dim: int = 2048,
        hidden_dim: int = 2048,
        output_dim: int = 128,
        num_layers: int = 3,
        *,
        num_kernels: int = 128,
        radial_function: Radial = "gaussian",
        distance: str = "euclidean",
        normalize: Normalize = False,
        residual: bool = True,
        batch_norm: bool = True,
        init: str = "scaled",
    ) -> None:
        check_dims(input_dim, hidden_dim, output_dim)
        check_size("num_layers", num_layers, minimum=2)

        def norm(dim: int) -> nn.Module | None:
            return nn.BatchNorm1d(dim) if batch_norm else None

        blocks: list[Block] = []
        for layer in range(num_layers - 1):
            rbf = RBFLayer(
                hidden_dim,
                num_kernels,
                hidden_dim,
                radial_function=radial_function,
                distance=distance,
                normalize=normalize,
                residual=residual,
                init=init,
            )
            blocks.append((hidden_dim if layer else input_dim, hidden_dim, norm(hidden_dim), rbf))
        super().__init__([*blocks, (hidden_dim, output_dim, norm(output_dim), None)])

    @classmethod
    def paper(
        cls,
        input_dim: int = 2048,
        hidden_dim: int = 2048,
        output_dim: int = 128,
        num_layers: int = 3,
        *,
        num_kernels: int = 2048,
        **options: Any,
    ) -> RBFNProjectionHead:
        """The published head: for loading its checkpoints, and for showing that it is dead."""
        options = PUBLISHED | {"num_kernels": num_kernels, "batch_norm": False} | options
        return cls(input_dim, hidden_dim, output_dim, num_layers, **options)


class RBFNPredictionHead(ProjectionHead):
    """Linear → BatchNorm → RBF → Linear: the predictor of BYOL and SimSiam.

    >>> import torch
    >>> RBFNPredictionHead(64, 256, 64)(torch.randn(8, 64)).shape
    torch.Size([8, 64])
    """

    def __init__(
        self,
        input_dim: int = 128,
        hidden_dim: int = 2048,
        output_dim: int = 128,
        *,
        num_kernels: int = 128,
        radial_function: Radial = "gaussian",
        distance: str = "euclidean",
        normalize: Normalize = False,
        residual: bool = True,
        batch_norm: bool = True,
        init: str = "scaled",
    ) -> None:
        check_dims(input_dim, hidden_dim, output_dim)
        rbf = RBFLayer(
            hidden_dim,
            num_kernels,
            hidden_dim,
            radial_function=radial_function,
            distance=distance,
            normalize=normalize,
            residual=residual,
            init=init,
        )
        norm = nn.BatchNorm1d(hidden_dim) if batch_norm else None
        super().__init__([(input_dim, hidden_dim, norm, rbf), (hidden_dim, output_dim, None, None)])

    @classmethod
    def paper(
        cls,
        input_dim: int = 128,
        hidden_dim: int = 2048,
        output_dim: int = 128,
        *,
        num_kernels: int = 2048,
        **options: Any,
    ) -> RBFNPredictionHead:
        """The published predictor; its BatchNorm does not save it."""
        options = PUBLISHED | {"num_kernels": num_kernels} | options
        return cls(input_dim, hidden_dim, output_dim, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """A default head of LightlySSL and the sizes of the published runs."""

    head: Callable[..., ProjectionHead]
    hidden_dim: int
    output_dim: int
    deep: bool = False  # takes num_layers
    published: tuple[tuple[str, Any], ...] = ()  # where the paper left lightly's defaults


DEFAULT_HEADS: Mapping[tuple[str, str], HeadSpec] = MappingProxyType(
    {
        ("simclr", "projection"): HeadSpec(
            head=lightly_heads.SimCLRProjectionHead,
            hidden_dim=2048,
            output_dim=128,
            deep=True,
            published=(("batch_norm", False),),
        ),
        ("moco", "projection"): HeadSpec(
            head=lightly_heads.MoCoProjectionHead, hidden_dim=2048, output_dim=128, deep=True
        ),
        ("byol", "projection"): HeadSpec(
            head=lightly_heads.BYOLProjectionHead, hidden_dim=4096, output_dim=256
        ),
        ("byol", "prediction"): HeadSpec(
            head=lightly_heads.BYOLPredictionHead, hidden_dim=4096, output_dim=256
        ),
        ("swav", "projection"): HeadSpec(
            head=lightly_heads.SwaVProjectionHead, hidden_dim=2048, output_dim=128
        ),
        ("simsiam", "projection"): HeadSpec(
            head=lightly_heads.SimSiamProjectionHead, hidden_dim=2048, output_dim=2048
        ),
        ("simsiam", "prediction"): HeadSpec(
            head=lightly_heads.SimSiamPredictionHead, hidden_dim=512, output_dim=2048
        ),
        ("barlow_twins", "projection"): HeadSpec(
            head=lightly_heads.BarlowTwinsProjectionHead, hidden_dim=8192, output_dim=8192
        ),
        ("vicreg", "projection"): HeadSpec(
            head=lightly_heads.VICRegProjectionHead, hidden_dim=8192, output_dim=8192, deep=True
        ),
    }
)


def default_head(
    method: str,
    input_dim: int | None = None,
    hidden_dim: int | None = None,
    output_dim: int | None = None,
    num_layers: int | None = None,
    *,
    kind: str = "projection",
    published: bool = False,
) -> ProjectionHead:
    """LightlySSL's own head of a method, in the sizes of the published runs.

    ``kind="prediction"`` gives the predictor of BYOL or SimSiam. ``published=True`` also
    takes the settings in which the paper left LightlySSL's defaults: SimCLR without
    BatchNorm. Only SimCLR, MoCo and VICReg have heads of variable depth.

    >>> type(default_head("byol", kind="prediction")).__name__
    'BYOLPredictionHead'
    """
    check_choice("method", method, dict.fromkeys(name for name, _ in DEFAULT_HEADS))
    check_choice("kind", kind, ("projection", "prediction"))
    if (method, kind) not in DEFAULT_HEADS:
        predictive = ", ".join(name for name, which in DEFAULT_HEADS if which == "prediction")
        raise ValueError(f"{method} has no prediction head; those that have one: {predictive}")
    spec = DEFAULT_HEADS[method, kind]
    hidden_dim = spec.hidden_dim if hidden_dim is None else hidden_dim
    output_dim = spec.output_dim if output_dim is None else output_dim
    if input_dim is None:
        input_dim = 2048 if kind == "projection" else output_dim
    check_dims(input_dim, hidden_dim, output_dim)
    options = dict(spec.published) if published else {}
    if num_layers is not None:
        if not spec.deep:
            raise ValueError(f"{method}'s {kind} head takes no num_layers; its depth is fixed")
        check_size("num_layers", num_layers, minimum=2)
        options["num_layers"] = num_layers
    return spec.head(input_dim, hidden_dim, output_dim, **options)


HEADS = ("default", "rbfn", "rbfn-normalized", "rbfn-paper", "mlp", "linear")


def build_head(
    name: str,
    method: str,
    input_dim: int,
    hidden_dim: int,
    output_dim: int,
    num_layers: int | None = None,
    *,
    kind: str = "projection",
    published: bool = False,
    **rbf_options: Any,
) -> ProjectionHead:
    """A head by name: the arms of a comparison.

    ``default`` is LightlySSL's of the method, ``rbfn`` ours, ``rbfn-normalized`` ours with kernels
    that share each sample out among them, ``rbfn-paper`` the published one.
    ``mlp`` has the depth, width and BatchNorm of the RBFN head with ReLU in place of the
    kernels, ``linear`` is one linear layer with the same BatchNorm after it. Two layers
    unless ``num_layers`` says otherwise; prediction heads always have two.

    >>> import torch
    >>> build_head("mlp", "simclr", 512, 256, 64)(torch.randn(8, 512)).shape
    torch.Size([8, 64])
    """
    check_choice("head", name, HEADS)
    dims = (input_dim, hidden_dim, output_dim)
    if name == "rbfn-normalized":
        name, rbf_options = "rbfn", rbf_options | {"normalize": True}
    if name == "default":
        layers = num_layers if kind == "projection" else None
        return default_head(method, *dims, layers, kind=kind, published=published)
    depth = 2 if num_layers is None else num_layers
    if name.startswith("rbfn") and kind == "projection":
        projection = RBFNProjectionHead if name == "rbfn" else RBFNProjectionHead.paper
        return projection(*dims, depth, **rbf_options)
    if name.startswith("rbfn"):
        prediction = RBFNPredictionHead if name == "rbfn" else RBFNPredictionHead.paper
        return prediction(*dims, **rbf_options)
    check_dims(*dims)
    norm = nn.BatchNorm1d(output_dim) if kind == "projection" else None
    if name == "linear":
        return ProjectionHead([(input_dim, output_dim, norm, None)])
    widths = [input_dim, *[hidden_dim] * (depth - 1 if kind == "projection" else 1)]
    blocks: list[Block] = [
        (inputs, outputs, nn.BatchNorm1d(outputs), nn.ReLU())
        for inputs, outputs in pairwise(widths)
    ]
    return ProjectionHead([*blocks, (hidden_dim, output_dim, norm, None)])


def check_dims(input_dim: int, hidden_dim: int, output_dim: int) -> None:
    check_size("input_dim", input_dim)
    check_size("hidden_dim", hidden_dim)
    check_size("output_dim", output_dim)
