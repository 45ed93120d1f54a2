"""What every method promises, whatever its heads: parametrised over the registry."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from method_cases import DIM, MOMENTA, Backbone, build, given, step, views
from torch import Tensor, nn

from radial.methods import METHODS, Method
from radial.rbf.heads import HEADS, build_head

CASES = [(name, head) for name in METHODS for head in HEADS]
BATCH = 6

every_case = pytest.mark.parametrize(("name", "head"), CASES)


def trained(name: str, head: str, *, seed: int = 0, **options: Any) -> Method:
    """After two steps: statistics, queues, momentum copies and prototypes have moved."""
    if name == "swav":
        options = {"queue_size": 8} | options
    method = build(name, head, seed=seed, **options)
    optimizer = torch.optim.SGD((p for p in method.parameters() if p.requires_grad), lr=0.05)
    for index in range(2):
        step(method, optimizer, views(BATCH, seed=index), 0.5)
    return method


def state(module: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


@every_case
def test_loss_is_a_finite_scalar_and_embeddings_are_detached(name: str, head: str) -> None:
    loss, embeddings = build(name, head)(views(BATCH), **given(name, BATCH))
    assert loss.shape == ()
    assert bool(loss.isfinite())
    assert loss.requires_grad
    assert embeddings.shape == (BATCH, DIM)
    assert not embeddings.requires_grad
    assert bool(embeddings.isfinite().all())


@every_case
def test_embeddings_are_those_of_the_first_view(name: str, head: str) -> None:
    method, x = build(name, head), views(BATCH)
    twin = copy.deepcopy(method)
    expected = twin.projection_head(twin.backbone(x[0])).detach()
    torch.testing.assert_close(method(x, **given(name, BATCH)).embeddings, expected)


@every_case
def test_gradient_reaches_every_parameter_but_momentum_copies(name: str, head: str) -> None:
    """A bias may have the gradient 0 (VICReg does not see a shift); a matrix may not."""
    method = trained(name, head)
    method.zero_grad()
    method(views(BATCH, seed=7), **given(name, BATCH)).loss.backward()
    for key, parameter in method.named_parameters():
        kernel = "head" in key and key.endswith(("kernels_centers", "log_shapes"))
        fixed = key.startswith(MOMENTA) or (head == "rbfn-frozen" and kernel)
        assert parameter.requires_grad != fixed, key
        if not parameter.requires_grad:
            assert parameter.grad is None, key
            continue
        assert parameter.grad is not None, key
        assert bool(parameter.grad.isfinite().all()), key
        assert parameter.dim() < 2 or float(parameter.grad.abs().max()) > 0.0, key


@every_case
def test_momentum_copies_share_nothing_with_what_they_follow(name: str, head: str) -> None:
    method = build(name, head)
    places = [value.data_ptr() for value in [*method.parameters(), *method.buffers()]]
    places = [place for place in places if place]  # nothing is allocated for empty buffers
    assert len(places) == len(set(places))


@every_case
def test_state_dict_round_trip_gives_the_same_next_losses(name: str, head: str) -> None:
    method = trained(name, head)
    queue = {"queue_size": 8} if name == "swav" else {}
    fresh = build(name, head, seed=1, **queue)
    fresh.load_state_dict(state(method))
    for index in range(2):
        x = views(BATCH, seed=3 + index)
        ours, theirs = method(x, **given(name, BATCH)), fresh(x, **given(name, BATCH))
        assert torch.equal(ours.loss, theirs.loss)
        assert torch.equal(ours.embeddings, theirs.embeddings)
        method.after_step(0.5)
        fresh.after_step(0.5)
    after = state(fresh)
    assert all(torch.equal(value, after[key]) for key, value in state(method).items())


@every_case
def test_eval_changes_nothing(name: str, head: str) -> None:
    method = trained(name, head).eval()
    before = state(method)
    x = views(BATCH, seed=3)
    first, second = method(x, **given(name, BATCH)), method(x, **given(name, BATCH))
    assert torch.equal(first.loss, second.loss)
    after = state(method)
    assert all(torch.equal(value, after[key]) for key, value in before.items())


@pytest.mark.parametrize("name", list(METHODS))
def test_training_puts_new_keys_into_queues(name: str) -> None:
    """The other half of the test before: what eval leaves alone does move in training."""
    method = trained(name, "default")
    before = state(method)
    method(views(BATCH, seed=3), **given(name, BATCH))
    moved = {
        key for key, value in method.state_dict().items() if not torch.equal(value, before[key])
    }
    assert "backbone.1.running_mean" in moved
    assert ("queue.rows" in moved) == (name in ("moco", "swav", "nnclr"))
    assert ("center" in moved) == (name == "dino")


@every_case
def test_bfloat16_autocast_gives_nearly_the_same_loss(name: str, head: str) -> None:
    method, x = trained(name, head), views(BATCH, seed=3)
    expected = copy.deepcopy(method)(x, **given(name, BATCH)).loss.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, embeddings = method(x, **given(name, BATCH))
    loss.backward()
    assert loss.dtype == embeddings.dtype == torch.float32
    if (name, head) != ("nnclr", "rbfn-paper"):  # dead: rounding alone chooses the neighbours
        assert loss.item() == pytest.approx(expected, rel=0.05, abs=0.02)
    gradients = [p.grad for p in method.parameters() if p.requires_grad]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


BAD: list[tuple[str, str, Any]] = [
    *((name, "temperature", value) for name in ("simclr", "moco", "swav") for value in (0.0, -1.0)),
    *((name, "temperature", float("nan")) for name in ("simclr", "moco", "swav")),
    ("simclr", "temperature", float("inf")),
    *((name, "momentum", value) for name in ("moco", "byol") for value in (-0.1, 1.5)),
    ("byol", "momentum", float("nan")),
    *((name, "temperature", 0.0) for name in ("dino", "nnclr", "supcon")),
    ("dino", "teacher_temperature", -1.0),
    ("dino", "momentum", 1.5),
    ("dino", "center_momentum", -0.5),
    ("dino", "prototypes", 1),
    ("dino", "frozen", 1.5),
    ("nnclr", "queue_size", 0),
    ("supervised", "classes", 1),
    ("moco", "queue_size", 0),
    ("moco", "queue_size", -3),
    ("moco", "queue_size", 2.5),
    ("swav", "queue_size", -3),
    ("swav", "prototypes", 1),
    ("swav", "prototypes", 3.5),
    ("swav", "frozen", -0.5),
    ("swav", "frozen", 1.5),
    ("swav", "frozen", float("nan")),
    ("barlow_twins", "redundancy", -1.0),
    ("barlow_twins", "redundancy", float("nan")),
    ("vicreg", "invariance", -2.0),
    ("vicreg", "variance", float("inf")),
    ("vicreg", "covariance", float("nan")),
]


@pytest.mark.parametrize(("name", "option", "value"), BAD)
def test_bad_options_are_named(name: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{option} must .*{value!r}"):
        build(name, "linear", **{option: value})


@pytest.mark.parametrize(
    ("name", "count"),
    [(n, count) for n in METHODS for count in (0, 1, 3) if count < 3 or n not in ("swav", "dino")],
)
def test_wrong_number_of_views(name: str, count: int) -> None:
    with pytest.raises(ValueError, match=rf"views.*{count}"):
        build(name, "linear")(views(BATCH, count), **given(name, BATCH))


@pytest.mark.parametrize("name", ["moco", "swav", "barlow_twins", "dino"])
def test_head_without_a_width(name: str) -> None:
    method = METHODS[name]
    with pytest.raises(ValueError, match="Flatten"):
        method(Backbone(), nn.Flatten()).constant_loss(4)


def test_unknown_head() -> None:
    with pytest.raises(ValueError, match=r"'rbf'.*'rbfn'"):
        build_head("rbf", "simclr", 16, 32, 8)


def test_names_are_the_keys() -> None:
    assert all(method.name == name for name, method in METHODS.items())
