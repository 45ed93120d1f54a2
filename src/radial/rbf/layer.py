"""The radial basis function layer.

Legend: … any leading dimensions, D = in_features, K = num_kernels, N reference samples.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.checks import check_choice, check_finite, check_shape, check_size
from radial.rbf.fitting import fit_shapes, fit_weights, orthogonal_rows
from radial.rbf.functions import (
    DISTANCES,
    RadialFunction,
    TensorFunction,
    as_radial_function,
    bounded,
    bounded_square,
    manhattan,
    squared_euclidean,
)

INITS = ("scaled", "paper")
NORMALIZATIONS = (False, True, "published")

_REFERENCE_SAMPLES = 256  # standard-normal inputs that init="scaled" is fitted to


class RBFLayer(nn.Module):
    """K radial kernels and a linear read-out: y = Σ_k w_k φ(ε_k ‖x − c_k‖).

    Parameters carry the names of the published checkpoints: ``kernels_centers`` c (K×D),
    ``log_shapes`` log ε (K), ``weights`` w (out×K).

    ``normalize=True`` divides the activations by their sum over the kernels: in log space
    where φ is positive (for the Gaussian a softmax of −(εr)²), otherwise by Σ|φ|, which is
    the same wherever φ ≥ 0 and has no pole where Σφ crosses 0. ``normalize="published"`` is
    φ / (1e-9 + Σφ), which turns underflow into zeros. ``residual=True`` adds x to y.

    ``init="scaled"`` is alive in any dimension for inputs of about unit variance: centres
    like standard-normal samples, shapes from their distances to such samples, weights for
    unit output variance. ``init="paper"`` draws the published values, centres U(−1, 1),
    log ε ~ N(0, 0.1), Xavier weights; a Gaussian layer is then dead beyond some 100
    dimensions. ``centers``, ``shapes`` (ε, not log ε) and ``weights`` override either.

    Everything is computed in float32 at least, under autocast too: the activations share a
    large constant part, which half precision would keep in place of what tells samples apart. Only
    a layer whose own parameters are of half precision, as after ``.bfloat16()``, rounds its output.

    Args:
        in_features: D.
        num_kernels: K.
        out_features: width of y.
        radial_function: φ, a name of `radial.functions.RADIAL_FUNCTIONS` or a function of εr.
        distance: "euclidean" or "manhattan".
        normalize: False, True or "published".
        residual: add x to y; needs as many outputs as inputs.
        init: "scaled" or "paper".
        centers: (K, D), over those of ``init``.
        shapes: ε (K), likewise.
        weights: (out, K), likewise.
        train_centers: whether the optimiser moves them.
        train_shapes: likewise.
        train_weights: likewise.

    Raises:
        ValueError: a size, name or tensor that does not fit.

    Example:
        >>> RBFLayer(2048, 128, 64)(torch.randn(8, 2048)).shape
        torch.Size([8, 64])
    """

    def __init__(
        self,
        in_features: int,
        num_kernels: int,
        out_features: int,
        *,
        radial_function: str | RadialFunction | TensorFunction = "gaussian",
        distance: str = "euclidean",
        normalize: bool | Literal["published"] = False,
        residual: bool = False,
        init: str = "scaled",
        centers: Tensor | None = None,
        shapes: Tensor | None = None,
        weights: Tensor | None = None,
        train_centers: bool = True,
        train_shapes: bool = True,
        train_weights: bool = True,
    ) -> None:
        super().__init__()
        check_size("in_features", in_features)
        check_size("num_kernels", num_kernels)
        check_size("out_features", out_features)
        check_choice("distance", distance, DISTANCES)
        check_choice("normalize", normalize, NORMALIZATIONS)
        check_choice("init", init, INITS)
        if residual and in_features != out_features:
            raise ValueError(
                f"residual needs as many outputs ({out_features}) as inputs ({in_features})"
            )
        self.in_features = in_features
        self.num_kernels = num_kernels
        self.out_features = out_features
        self.function = as_radial_function(radial_function)
        if isinstance(radial_function, nn.Module):
            self.radial_function = radial_function  # so that its parameters are found
        self.distance = distance
        self.normalize = normalize
        self.residual = residual
        self.init = init
        self.kernels_centers = nn.Parameter(torch.empty(num_kernels, in_features), train_centers)
        self.log_shapes = nn.Parameter(torch.empty(num_kernels), train_shapes)
        self.weights = nn.Parameter(torch.empty(out_features, num_kernels), train_weights)
        self.reset_parameters()
        self._override(centers, shapes, weights)

    @property
    def centers(self) -> Tensor:
        """c, (K, D)."""
        return self.kernels_centers

    @property
    def shapes(self) -> Tensor:
        """ε, (K)."""
        return self.log_shapes.exp()

    @property
    def widths(self) -> Tensor:
        """σ = 1/(√2 ε), (K): the standard deviation of a Gaussian kernel."""
        return torch.exp(-self.log_shapes) / math.sqrt(2.0)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new values for all parameters, as ``init`` says."""
        if self.init == "paper":
            nn.init.uniform_(self.kernels_centers, -1.0, 1.0)
            nn.init.normal_(self.log_shapes, 0.0, 0.1)
            nn.init.xavier_uniform_(self.weights)
        elif not self.kernels_centers.is_meta:
            self.kernels_centers.copy_(orthogonal_rows(self.num_kernels, self.in_features))
            self.weights.copy_(orthogonal_rows(self.out_features, self.num_kernels))
            self.fit(torch.randn(_REFERENCE_SAMPLES, self.in_features))

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Set shapes and weights for inputs like x; the centres stay.

        Args:
            x: (N, D).
        """
        squared = self.squared_distances(x.to(self.kernels_centers.device))
        self.log_shapes.copy_(self.fitting_shapes(squared).log())
        phi = self.activate(squared)
        check_finite(f"activations of {self.function.name!r}", phi)
        self.weights.copy_(fit_weights(at_least_float32(self.weights), phi))

    def fitting_shapes(self, squared: Tensor) -> Tensor:
        """The shapes that suit squared distances.

        Args:
            squared: (N, K).

        Returns:
            ε (K).
        """
        return fit_shapes(self.function, squared, spread=self.normalize is True)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output.

        Args:
            x: (…, D).

        Returns:
            y (…, out).
        """
        return self.read_out(self.activations(x), x)

    def activations(self, x: Tensor) -> Tensor:
        """φ(ε_k ‖x − c_k‖), normalised if the layer is.

        Args:
            x: (…, D).

        Returns:
            (…, K).
        """
        return self.activate(self.squared_distances(x))

    @torch.no_grad()
    def answers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the kernels say of each input, without gradient.

        Args:
            x: (…, D).

        Returns:
            The nearest kernel in ε‖x − c‖ (…), the activations and (ε‖x − c‖)², both (…, K).
        """
        squared = self.squared_distances(x)
        scaled = squared * self.shapes.square()
        return scaled.argmin(-1), self.activate(squared), scaled

    def squared_distances(self, x: Tensor) -> Tensor:
        """‖x − c_k‖² in the layer's distance.

        Args:
            x: (…, D).

        Returns:
            (…, K), in float32 at least.

        Raises:
            ValueError: inputs of another width.
        """
        if x.shape[-1] != self.in_features:
            shape = tuple(x.shape)
            raise ValueError(f"expected inputs of shape (…, {self.in_features}), not {shape}")
        with torch.autocast(x.device.type, enabled=False):
            x, centers = at_least_float32(x), at_least_float32(self.kernels_centers)
            if self.distance == "euclidean":
                return squared_euclidean(x, centers)
            return bounded_square(manhattan(x, centers))

    def activate(self, squared: Tensor) -> Tensor:
        """Squared distances to activations.

        Args:
            squared: (…, K).

        Returns:
            φ (…, K).
        """
        u = bounded(squared * torch.exp(2.0 * at_least_float32(self.log_shapes)))
        if self.normalize is True and self.function.log_fn is not None:
            return torch.softmax(self.function.log_fn(u), -1)
        phi = self.function.fn(u)
        if self.normalize is True:
            return phi / phi.abs().sum(-1, keepdim=True).clamp(min=1e-6)
        if self.normalize == "published":
            return phi / (1e-9 + phi.sum(-1, keepdim=True))
        return phi

    def read_out(self, phi: Tensor, x: Tensor) -> Tensor:
        """Activations to outputs.

        Args:
            phi: (…, K).
            x: what a residual layer adds, (…, D).

        Returns:
            y (…, out).
        """
        with torch.autocast(phi.device.type, enabled=False):
            y = F.linear(phi, at_least_float32(self.weights))
        y = y + x if self.residual else y
        return y.to(self.weights.dtype) if self.weights.dtype.itemsize < 4 else y

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows in parentheses."""
        return (
            f"{self.in_features}, {self.num_kernels}, {self.out_features}, "
            f"radial_function={self.function.name!r}, distance={self.distance!r}, "
            f"normalize={self.normalize!r}, residual={self.residual}"
        )

    @torch.no_grad()
    def _override(
        self, centers: Tensor | None, shapes: Tensor | None, weights: Tensor | None
    ) -> None:
        for name, target, value in (
            ("centers", self.kernels_centers, centers),
            ("shapes", self.log_shapes, shapes),
            ("weights", self.weights, weights),
        ):
            if value is not None:
                check_shape(name, value, tuple(target.shape))
                check_finite(name, value)
        if shapes is not None and not bool((shapes > 0).all()):
            raise ValueError(f"shapes must be positive, but the smallest is {float(shapes.min())}")
        if centers is not None:
            self.kernels_centers.copy_(centers)
            if self.init == "scaled" and self.num_kernels > 1:  # for inputs that lie like these
                noise = torch.randn(_REFERENCE_SAMPLES, self.in_features)
                self.fit(centers.mean(0) + centers.std(0) * noise.to(centers))
        if shapes is not None:
            self.log_shapes.copy_(shapes.log())
        if weights is not None:
            self.weights.copy_(weights)


def at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def deepest_rbf_layer(head: nn.Module) -> RBFLayer | None:
    """The last RBF layer of a head: the one whose kernels are scored."""
    layers = [module for module in head.modules() if isinstance(module, RBFLayer)]
    return layers[-1] if layers else None
