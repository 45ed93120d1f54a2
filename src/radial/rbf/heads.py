"""RBFN heads in the form of LightlySSL's, the default heads they replace, and the arms between.

Legend: D = hidden_dim, K = num_kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor, nn

from radial.checks import check_choice, check_size, needs
from radial.rbf.functions import RadialFunction, TensorFunction
from radial.rbf.layer import RBFLayer

Radial = str | RadialFunction | TensorFunction
Normalize = bool | Literal["published"]
Block = tuple[int, int, nn.Module | None, nn.Module | None]

PUBLISHED: dict[str, Any] = {"normalize": "published", "residual": False, "init": "paper"}


class ProjectionHead(nn.Module):
    """Blocks of Linear → norm → nonlinearity, with the layout and keys of LightlySSL's class.

    A copy of its layout rather than a subclass: importing LightlySSL takes longer than torch.

    Args:
        blocks: (inputs, outputs, norm or None, nonlinearity or None) each; a linear layer has a
            bias where no norm follows.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, norm, nonlinearity in blocks:
            layers.append(nn.Linear(inputs, outputs, bias=norm is None))
            layers += [module for module in (norm, nonlinearity) if module is not None]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs) → (B, outputs)."""
        projection: Tensor = self.layers(x)
        return projection


def _rbf_layer(dim: int, num_kernels: int, learns: bool, **form: Any) -> RBFLayer:
    return RBFLayer(dim, num_kernels, dim, train_centers=learns, train_shapes=learns, **form)


class RBFNProjectionHead(ProjectionHead):
    """[Linear → BatchNorm → RBF] × (num_layers − 1) → Linear → BatchNorm.

    A drop-in replacement for LightlySSL's projection heads, with their leading arguments and their
    depth. The head is alive as it is; `radial.calibrate` sets it from real features and is
    worth its second, above all without BatchNorm.

    Unlike the published head it has BatchNorm and a residual path, x + RBF(x), by default:
    in short runs from scratch a plain live RBFN head came out about as good as a linear
    head, with the residual path about as good as an MLP.

    Args:
        input_dim: features of the backbone.
        hidden_dim: D, width of all layers but the last.
        output_dim: width of the embeddings.
        num_layers: linear layers, counted as LightlySSL does; each but the last is followed by an
            RBF layer of K kernels in D dimensions.
        num_kernels: K, of each RBF layer.
        radial_function: φ, a name of `radial.functions.RADIAL_FUNCTIONS` or a function.
        distance: "euclidean" or "manhattan".
        normalize: kernels share each sample out among them; "published" as in the paper's code.
        residual: x + RBF(x) instead of RBF(x).
        batch_norm: after every linear layer.
        init: "scaled", alive in any dimension, or "paper", dead beyond some 100.
        train_kernels: whether centres and shapes learn; False leaves them as calibrated.

    Example:
        >>> import torch
        >>> RBFNProjectionHead(512, 256, 64)(torch.randn(8, 512)).shape
        torch.Size([8, 64])
    """

    def __init__(
        self,
        input_dim: int = 2048,
        hidden_dim: int = 2048,
        output_dim: int = 128,
        num_layers: int = 2,
        *,
        num_kernels: int = 128,
        radial_function: Radial = "gaussian",
        distance: str = "euclidean",
        normalize: Normalize = False,
        residual: bool = True,
        batch_norm: bool = True,
        init: str = "scaled",
        train_kernels: bool = True,
    ) -> None:
        check_dims(input_dim, hidden_dim, output_dim)
        check_size("num_layers", num_layers, minimum=2)
        form: dict[str, Any] = {"radial_function": radial_function, "distance": distance}
        form |= {"normalize": normalize, "residual": residual, "init": init}

        def norm(dim: int) -> nn.Module | None:
            return nn.BatchNorm1d(dim) if batch_norm else None

        blocks: list[Block] = []
        for layer in range(num_layers - 1):
            rbf = _rbf_layer(hidden_dim, num_kernels, train_kernels, **form)
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
        """The published head: for loading its checkpoints, and for showing that it is dead.

        Args:
            input_dim: features of the backbone.
            hidden_dim: D.
            output_dim: width of the embeddings.
            num_layers: linear layers; three, as published.
            num_kernels: K.
            **options: as of the class, over the published values.

        Returns:
            The head, as published.
        """
        options = PUBLISHED | {"num_kernels": num_kernels, "batch_norm": False} | options
        return cls(input_dim, hidden_dim, output_dim, num_layers, **options)


class RBFNPredictionHead(ProjectionHead):
    """Linear → BatchNorm → RBF → Linear: the predictor of BYOL and SimSiam.

    Args:
        input_dim: width of the embeddings.
        hidden_dim: D, width of the RBF layer.
        output_dim: width of the predictions.
        num_kernels: K.
        radial_function: φ, a name of `radial.functions.RADIAL_FUNCTIONS` or a function.
        distance: "euclidean" or "manhattan".
        normalize: kernels share each sample out among them; "published" as in the paper's code.
        residual: x + RBF(x) instead of RBF(x).
        batch_norm: after the first linear layer.
        init: "scaled", alive in any dimension, or "paper", dead beyond some 100.
        train_kernels: whether centres and shapes learn; False leaves them as calibrated.

    Example:
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
        train_kernels: bool = True,
    ) -> None:
        check_dims(input_dim, hidden_dim, output_dim)
        form: dict[str, Any] = {"radial_function": radial_function, "distance": distance}
        form |= {"normalize": normalize, "residual": residual, "init": init}
        rbf = _rbf_layer(hidden_dim, num_kernels, train_kernels, **form)
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
        """The published predictor; its BatchNorm does not save it.

        Args:
            input_dim: width of the embeddings.
            hidden_dim: D.
            output_dim: width of the predictions.
            num_kernels: K.
            **options: as of the class, over the published values.

        Returns:
            The predictor, as published.
        """
        options = PUBLISHED | {"num_kernels": num_kernels} | options
        return cls(input_dim, hidden_dim, output_dim, **options)


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """A default head of LightlySSL and the sizes of the published runs."""

    head: str  # a class of lightly.models.modules.heads
    hidden_dim: int
    output_dim: int
    deep: bool = False  # takes num_layers
    published: tuple[tuple[str, Any], ...] = ()  # where the paper left lightly's defaults

    def build(self, input_dim: int, hidden_dim: int, output_dim: int, **options: Any) -> nn.Module:
        needs("train", "lightly")
        from lightly.models.modules import heads

        if self.head == "DINOProjectionHead":
            return dino_head(input_dim, hidden_dim, output_dim, **options)
        module: nn.Module = getattr(heads, self.head)(input_dim, hidden_dim, output_dim, **options)
        return module


def dino_head(
    input_dim: int, hidden_dim: int, output_dim: int, *, batch_norm: bool = True
) -> ProjectionHead:
    """LightlySSL's DINO head up to its bottleneck; the layer to the prototypes is the method's.

    DINO's and LightlySSL's option of BatchNorm is on: without it embeddings of small networks start
    nearly alike (spread 0.2), and runs of a few hundred steps end even over the prototypes.
    """
    widths = (input_dim, hidden_dim, hidden_dim)
    blocks: list[Block] = [
        (i, o, nn.BatchNorm1d(o) if batch_norm else None, nn.GELU()) for i, o in pairwise(widths)
    ]
    head = ProjectionHead([*blocks, (hidden_dim, output_dim, None, None)])
    for layer in head.layers:
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02, a=-2.0, b=2.0)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return head


_NO_NORM = (("batch_norm", False),)
_SIMCLR = HeadSpec("SimCLRProjectionHead", 2048, 128, deep=True)
_HEAD_SPECS = {
    ("simclr", "projection"): replace(_SIMCLR, published=_NO_NORM),
    ("moco", "projection"): HeadSpec("MoCoProjectionHead", 2048, 128, deep=True),
    ("byol", "projection"): HeadSpec("BYOLProjectionHead", 4096, 256),
    ("byol", "prediction"): HeadSpec("BYOLPredictionHead", 4096, 256),
    ("swav", "projection"): HeadSpec("SwaVProjectionHead", 2048, 128),
    ("simsiam", "projection"): HeadSpec("SimSiamProjectionHead", 2048, 2048),
    ("simsiam", "prediction"): HeadSpec("SimSiamPredictionHead", 512, 2048),
    ("barlow_twins", "projection"): HeadSpec("BarlowTwinsProjectionHead", 8192, 8192),
    ("vicreg", "projection"): HeadSpec("VICRegProjectionHead", 8192, 8192, deep=True),
    ("dino", "projection"): HeadSpec("DINOProjectionHead", 2048, 256, published=_NO_NORM),
    ("nnclr", "projection"): HeadSpec("NNCLRProjectionHead", 2048, 256),
    ("nnclr", "prediction"): HeadSpec("NNCLRPredictionHead", 4096, 256),
    ("supervised", "projection"): _SIMCLR,
    ("supcon", "projection"): _SIMCLR,
}
DEFAULT_HEADS: Mapping[tuple[str, str], HeadSpec] = MappingProxyType(_HEAD_SPECS)


def default_head(
    method: str,
    input_dim: int | None = None,
    hidden_dim: int | None = None,
    output_dim: int | None = None,
    num_layers: int | None = None,
    *,
    kind: str = "projection",
    published: bool = False,
) -> nn.Module:
    """LightlySSL's own head of a method, in the sizes of the published runs.

    Args:
        method: such as "simclr".
        input_dim: features of the backbone; for a predictor, of the embeddings.
        hidden_dim: width of the hidden layers.
        output_dim: width of the embeddings; of DINO's head the bottleneck, as the last layer, to
            the prototypes, belongs to `radial.methods.DINO`.
        num_layers: depth; only SimCLR, MoCo and VICReg have heads of variable depth.
        kind: "projection", or "prediction" for the predictor of BYOL, SimSiam or NNCLR.
        published: take the settings in which the paper left LightlySSL's defaults, too: SimCLR
            without BatchNorm.

    Returns:
        A module of LightlySSL's.

    Raises:
        ValueError: where a method has no such head.

    Example:
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
    return spec.build(input_dim, hidden_dim, output_dim, **options)


# Arms of a comparison. The RBFN ones by what they change of the default RBFN head.
RBFN_ARMS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "rbfn": {},
        "rbfn-normalized": {"normalize": True},
        "rbfn-plain": {"residual": False},
        "rbfn-frozen": {"train_kernels": False},
    }
)
HEADS = ("default", *RBFN_ARMS, "rbfn-paper", "mlp", "mlp-silu", "residual-linear", "linear")


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
) -> nn.Module:
    """A head by name: the arms of a comparison.

    | name | what it is | what it tells |
    |---|---|---|
    | default | LightlySSL's of the method | |
    | rbfn | ours | |
    | rbfn-normalized | kernels share each sample out among them | |
    | rbfn-plain | without the residual path | what that path does |
    | rbfn-frozen | kernels stay as calibrated | what learning kernels does |
    | rbfn-paper | the published head | that it is dead |
    | mlp | ReLU in place of the kernels; same depth, width, BatchNorm | what kernels do |
    | mlp-silu | the same with SiLU | what smoothness does |
    | residual-linear | x + BAx of the kernels' rank in place of the RBF layer | what φ does |
    | linear | one linear layer and its BatchNorm | what depth does |

    Args:
        name: of the arm.
        method: whose head LightlySSL's is.
        input_dim: features of the backbone.
        hidden_dim: width of the hidden layers.
        output_dim: width of the embeddings.
        num_layers: depth; two where it is None. Prediction heads always have two.
        kind: "projection" or "prediction".
        published: of ``default``: as in the published runs.
        **rbf_options: of `RBFNProjectionHead`, for RBFN heads; ``num_kernels`` is the rank
            of ``residual-linear``.

    Example:
        >>> import torch
        >>> build_head("mlp", "simclr", 512, 256, 64)(torch.randn(8, 512)).shape
        torch.Size([8, 64])
    """
    check_choice("head", name, HEADS)
    dims = (input_dim, hidden_dim, output_dim)
    projects = kind == "projection"
    if name == "default":
        layers = num_layers if projects else None
        return default_head(method, *dims, layers, kind=kind, published=published)
    depth = 2 if num_layers is None else num_layers
    if name.startswith("rbfn"):
        form: Any = RBFNProjectionHead if projects else RBFNPredictionHead
        form = form.paper if name == "rbfn-paper" else form
        options = RBFN_ARMS.get(name, {}) | rbf_options
        return form(*dims, depth, **options) if projects else form(*dims, **options)  # type: ignore[no-any-return]
    check_dims(*dims)
    norm = nn.BatchNorm1d(output_dim) if projects else None
    if name == "linear":
        return ProjectionHead([(input_dim, output_dim, norm, None)])
    middle: Any = {
        "mlp": nn.ReLU,
        "mlp-silu": nn.SiLU,
        "residual-linear": partial(ResidualLinear, hidden_dim, rbf_options.get("num_kernels", 128)),
    }[name]
    widths = [input_dim, *[hidden_dim] * (depth - 1 if projects else 1)]
    blocks: list[Block] = [
        (inputs, outputs, nn.BatchNorm1d(outputs), middle()) for inputs, outputs in pairwise(widths)
    ]
    return ProjectionHead([*blocks, (hidden_dim, output_dim, norm, None)])


class ResidualLinear(nn.Module):
    """x + BAx with A (K, D) and B (D, K): a residual RBF layer's parameters without its kernels.

    Args:
        dim: D.
        rank: K.
    """

    def __init__(self, dim: int, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) → (B, D)."""
        y: Tensor = self.up(self.down(x))
        return x + y


def check_dims(input_dim: int, hidden_dim: int, output_dim: int) -> None:
    check_size("input_dim", input_dim)
    check_size("hidden_dim", hidden_dim)
    check_size("output_dim", output_dim)
