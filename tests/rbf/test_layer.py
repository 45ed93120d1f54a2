"""The layer against its equation in float64, and everything a module must survive."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacfwd, jacrev, vmap

from radial import RBFLayer
from radial.rbf.functions import RADIAL_FUNCTIONS

NAMES = list(RADIAL_FUNCTIONS)
NORMALIZATIONS = [False, True, "published"]


def own_function(s: torch.Tensor) -> torch.Tensor:
    return torch.exp(-s) * torch.cos(s)


def reference(layer: RBFLayer, x: torch.Tensor) -> torch.Tensor:
    """y = Σ w φ(ε‖x − c‖) by broadcasting, in float64."""
    difference = x.double().unsqueeze(-2) - layer.centers.double()
    r = difference.norm(dim=-1, p=2 if layer.distance == "euclidean" else 1)
    phi = layer.function(layer.shapes.double() * r)
    if layer.normalize is True:
        phi = phi / phi.abs().sum(-1, keepdim=True)
    elif layer.normalize == "published":
        phi = phi / (1e-9 + phi.sum(-1, keepdim=True))
    y = phi @ layer.weights.double().T
    return y + x.double() if layer.residual else y


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_equals_its_equation(name: str, distance: str, normalize: bool | str) -> None:
    layer = RBFLayer(
        24, 10, 24, radial_function=name, distance=distance, normalize=normalize, residual=True
    ).double()
    x = torch.randn(7, 24, dtype=torch.float64)
    torch.testing.assert_close(layer(x), reference(layer, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_gradcheck(name: str, normalize: bool | str) -> None:
    layer = RBFLayer(4, 5, 3, radial_function=name, normalize=normalize).double()
    names, values = zip(*layer.named_parameters())
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)

    def run(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return functional_call(layer, dict(zip(names, parameters)), (x,))

    inputs = (x, *(v.detach().clone().requires_grad_() for v in values))
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e8, 1e15, 1e20])
def test_finite_at_centres_and_far_away(
    name: str, normalize: bool | str, autocast: bool, scale: float
) -> None:
    layer = RBFLayer(16, 6, 4, radial_function=name, normalize=normalize)
    start = layer.centers.detach()[:4]
    x = (start + scale * torch.randn(4, 16)).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        y = layer(x)
    y.sum().backward()
    assert torch.isfinite(y).all()
    for value in (x, *layer.parameters()):
        assert torch.isfinite(value.grad).all()


def test_finite_in_between_too() -> None:
    """A line from a centre to far away, at D = 1: no radius is missed."""
    for name in NAMES:
        layer = RBFLayer(1, 2, 1, radial_function=name, centers=torch.tensor([[0.0], [1.0]]))
        x = torch.linspace(0.0, 1.0, 1001).unsqueeze(1).requires_grad_()
        layer(x).sum().backward()
        assert torch.isfinite(x.grad).all()


def test_normalised_gaussian_survives_where_the_published_form_underflows() -> None:
    shapes = torch.full((6,), 1.0)
    options = {"centers": torch.randn(6, 256), "shapes": shapes}
    x = torch.randn(5, 256)
    live = RBFLayer(256, 6, 2, normalize=True, **options).activations(x)
    dead = RBFLayer(256, 6, 2, normalize="published", **options).activations(x)
    torch.testing.assert_close(live.sum(-1), torch.ones(5))
    assert (dead == 0).all()


def test_normalised_equals_published_where_nothing_underflows() -> None:
    layer = RBFLayer(8, 6, 2, normalize=True).double()
    published = copy.deepcopy(layer)
    published.normalize = "published"
    x = torch.randn(5, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), published(x), rtol=1e-5, atol=1e-7)


def test_normalised_tps_has_no_pole() -> None:
    layer = RBFLayer(
        1,
        2,
        1,
        radial_function="tps",
        normalize=True,
        centers=torch.tensor([[0.0], [0.5]]),
        shapes=torch.tensor([1.0, 1.0]),
    )
    x = torch.linspace(0.0, 3.0, 3001).unsqueeze(1)
    assert layer.activations(x).abs().max() <= 1.0


@pytest.mark.parametrize("shape", [(3,), (0, 3), (5, 3), (2, 5, 3), (2, 0, 3)])
@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_leading_dimensions_and_empty_batches(shape: tuple[int, ...], distance: str) -> None:
    layer = RBFLayer(3, 4, 2, distance=distance)
    x = torch.randn(*shape, requires_grad=True)
    y = layer(x)
    assert y.shape == (*shape[:-1], 2)
    y.sum().backward()
    assert x.grad.shape == shape


def test_published_init_has_the_published_values() -> None:
    layer = RBFLayer(512, 1024, 256, init="paper")
    layer.requires_grad_(False)
    centers, weights = layer.centers, layer.weights
    assert -1.0 <= centers.min() < -0.999
    assert 0.999 < centers.max() <= 1.0
    assert centers.std() == pytest.approx(1 / math.sqrt(3), rel=0.01)
    assert layer.log_shapes.std() == pytest.approx(0.1, rel=0.1)
    assert layer.log_shapes.mean() == pytest.approx(0.0, abs=0.02)
    bound = math.sqrt(6 / (1024 + 256))
    assert weights.abs().max() <= bound
    assert weights.std() == pytest.approx(bound / math.sqrt(3), rel=0.01)


@pytest.mark.parametrize("dimensions", [1, 2, 64, 2048, 8192])
@pytest.mark.parametrize("normalize", [False, True])
def test_scaled_init_gives_unit_variance_in_any_dimension(dimensions: int, normalize: bool) -> None:
    layer = RBFLayer(dimensions, 128, 64, normalize=normalize)
    y = layer(torch.randn(512, dimensions)).detach()
    assert y.var(0).mean() == pytest.approx(1.0, rel=0.4)
    assert y.mean(0).square().mean() < 0.3


def test_properties_read_only_and_consistent() -> None:
    layer = RBFLayer(4, 3, 2)
    torch.testing.assert_close(layer.widths, 1 / (math.sqrt(2) * layer.shapes))
    for name in ("centers", "shapes", "widths"):
        with pytest.raises(AttributeError):
            setattr(layer, name, torch.zeros(3))


def test_given_values_are_taken_and_frozen_on_request() -> None:
    c, e, w = torch.randn(3, 4), torch.rand(3) + 0.1, torch.randn(2, 3)
    layer = RBFLayer(
        4,
        3,
        2,
        centers=c,
        shapes=e,
        weights=w,
        train_centers=False,
        train_shapes=False,
        train_weights=False,
    )
    torch.testing.assert_close(layer.centers, c)
    torch.testing.assert_close(layer.shapes, e)
    torch.testing.assert_close(layer.weights, w)
    assert not any(p.requires_grad for p in layer.parameters())
    assert [n for n, _ in layer.named_parameters()] == ["kernels_centers", "log_shapes", "weights"]


@pytest.mark.parametrize(
    "radial_function", ["gaussian", "linear", own_function], ids=["gaussian", "linear", "own"]
)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_same_output_after_copy_pickle_reload_compile_and_autocast(
    radial_function, normalize: bool, distance: str
) -> None:
    def build() -> RBFLayer:
        return RBFLayer(
            32, 16, 8, radial_function=radial_function, normalize=normalize, distance=distance
        )

    layer, x = build(), torch.randn(9, 32)
    y = layer(x)
    reloaded = build()
    reloaded.load_state_dict(layer.state_dict(), strict=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), reloaded, compiled):
        torch.testing.assert_close(other(x), y)
    torch.testing.assert_close(layer.double()(x.double()).float(), y, rtol=1e-3, atol=1e-3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer.float()(x), y)


def test_compiled_gradients_equal_eager_ones() -> None:
    layer, x = RBFLayer(16, 8, 4), torch.randn(5, 16)
    compiled = torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager")
    layer(x).square().sum().backward()
    compiled(x).square().sum().backward()
    for a, b in zip(layer.parameters(), compiled.parameters()):
        torch.testing.assert_close(a.grad, b.grad)


def test_half_precision_parameters_are_computed_in_float32() -> None:
    layer = RBFLayer(2048, 32, 8)
    x = torch.randn(16, 2048)
    y = copy.deepcopy(layer).bfloat16()(x.bfloat16())
    assert y.dtype == torch.bfloat16  # as of LightlySSL's layers: what follows is in bfloat16, too
    assert torch.corrcoef(torch.stack([y.float().flatten(), layer(x).flatten()]))[0, 1] > 0.95


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_torch_func_per_sample_gradients(distance: str) -> None:
    layer, x = RBFLayer(6, 5, 3, distance=distance), torch.randn(4, 6)
    parameters = {n: p.detach() for n, p in layer.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        return functional_call(layer, parameters, (sample.unsqueeze(0),)).square().sum()

    got = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, sample in enumerate(x):
        layer.zero_grad()
        layer(sample.unsqueeze(0)).square().sum().backward()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(got[name][i], parameter.grad)


def test_torch_func_jacobians_agree() -> None:
    layer, x = RBFLayer(6, 5, 3).double(), torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(jacfwd(layer)(x), jacrev(layer)(x))
    hessian = jacfwd(jacrev(layer))(x)
    torch.testing.assert_close(hessian, hessian.transpose(1, 2))


@pytest.mark.parametrize("normalize", [False, True])
def test_one_kernel_one_dimension_one_output(normalize: bool) -> None:
    layer = RBFLayer(1, 1, 1, normalize=normalize)
    assert layer.weights.abs().max() < 1e3
    assert torch.isfinite(layer(torch.randn(5, 1))).all()


def test_activations_that_do_not_vary_leave_sane_weights() -> None:
    layer = RBFLayer(8, 4, 2, radial_function=torch.ones_like)
    assert layer.weights.abs().max() < 10.0


def test_radial_function_that_gives_nan_is_refused() -> None:
    with pytest.raises(ValueError, match=r"activations of .*NaN or inf"):
        RBFLayer(8, 4, 2, radial_function=lambda s: torch.log(-s))


def test_module_as_radial_function_is_registered() -> None:
    layer = RBFLayer(8, 4, 2, radial_function=nn.Softplus(beta=2))
    learned = RBFLayer(8, 4, 2, radial_function=nn.Sequential(nn.PReLU()))
    assert "radial_function.0.weight" in learned.state_dict()
    twin = copy.deepcopy(learned).double()
    assert twin.radial_function[0].weight.dtype == torch.float64
    assert twin(torch.randn(3, 8).double()).dtype == torch.float64
    assert torch.isfinite(layer(torch.randn(3, 8))).all()


def test_given_centres_set_the_scale() -> None:
    centers = 100.0 * torch.randn(16, 64) + 50.0
    layer = RBFLayer(64, 16, 8, centers=centers)
    y = layer(100.0 * torch.randn(256, 64) + 50.0)
    assert 0.5 < float(y.detach().var(0).mean()) < 2.0


def test_meta_device_and_half_default_dtype() -> None:
    with torch.device("meta"):
        layer = RBFLayer(8, 4, 2)
    assert layer.to_empty(device="cpu").kernels_centers.shape == (4, 8)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.isfinite(RBFLayer(8, 4, 2).weights).all()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_cuda_equals_cpu(distance: str) -> None:
    layer, x = RBFLayer(64, 16, 8, distance=distance), torch.randn(9, 64)
    y = layer(x)
    torch.testing.assert_close(layer.cuda()(x.cuda()).cpu(), y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 1, 1), {}, "in_features must be an integer of at least 1, not 0"),
        ((1, -2, 1), {}, "num_kernels must be an integer of at least 1, not -2"),
        ((1, 1, 2.5), {}, "out_features must be an integer of at least 1, not 2.5"),
        ((2, 2, 2), {"radial_function": "gauss"}, "unknown radial function 'gauss'; known: gaus"),
        ((2, 2, 2), {"distance": "cosine"}, "unknown distance 'cosine'; known: 'euclidean', 'man"),
        ((2, 2, 2), {"normalize": "yes"}, "unknown normalize 'yes'; known: False, True, 'publ"),
        ((2, 2, 2), {"init": "xavier"}, "unknown init 'xavier'; known: 'scaled', 'paper'"),
        ((2, 2, 3), {"residual": True}, r"as many outputs \(3\) as inputs \(2\)"),
        ((2, 3, 2), {"centers": torch.zeros(2, 2)}, r"centers must have shape \(3, 2\), not \(2,"),
        ((2, 2, 2), {"shapes": torch.tensor([1.0, -1.0])}, "positive, but the smallest is -1"),
        ((1, 2, 1), {"weights": torch.tensor([[1.0, math.nan]])}, "weights: 1 of 2 values are NaN"),
    ],
)
def test_bad_input_names_the_value(arguments, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RBFLayer(*arguments, **options)


def test_wrong_feature_width_at_run_time() -> None:
    with pytest.raises(ValueError, match=r"shape \(…, 4\), not \(2, 5\)"):
        RBFLayer(4, 2, 2)(torch.zeros(2, 5))
