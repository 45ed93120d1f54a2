"""Same numbers as the reference: each loss against a plain re-statement of its paper.

The re-statements are loops over samples in float64; networks are called on copies of the
method's own weights. Legend: N samples, d embedding width, K prototypes, Q queue rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lightly.loss import (
    BarlowTwinsLoss,
    DINOLoss,
    NegativeCosineSimilarity,
    NTXentLoss,
    SwaVLoss,
    VICRegLoss,
)
from method_cases import DIM, MOMENTA, Backbone, build, given, step, views
from torch import Tensor, nn

from radial.methods import METHODS, Method
from radial.methods.base import Queue, cosine_momentum

HEADS = ("default", "rbfn")
CASES = [(name, head) for name in METHODS for head in HEADS]
CROPS = {"swav": 6, "dino": 6}  # two views and four small crops; every other method takes two


# -- the papers, restated ---------------------------------------------------------------------


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return a.dot(b) / (a.dot(a).sqrt() * b.dot(b).sqrt())


def unit(z: Tensor) -> Tensor:
    return torch.stack([row / row.dot(row).sqrt() for row in z])


def mean(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).mean()


def nt_xent(z0: Tensor, z1: Tensor, temperature: float) -> Tensor:
    """SimCLR, equation 1: 2N anchors, each against the 2N − 1 others."""
    n, z = len(z0), [*z0, *z1]
    losses = []
    for i in range(2 * n):
        positive = (i + n) % (2 * n)
        s = {k: cosine(z[i], z[k]) / temperature for k in range(2 * n) if k != i}
        losses.append(-torch.log(s[positive].exp() / sum(v.exp() for v in s.values())))
    return mean(losses)


def info_nce(q: Tensor, k: Tensor, queue: list[Tensor], temperature: float) -> Tensor:
    """MoCo, equation 1, with one positive key a query and the queue's negatives."""
    losses = []
    for query, key in zip(unit(q), unit(k)):
        positive = torch.exp(query.dot(key) / temperature)
        negatives = [torch.exp(query.dot(row) / temperature) for row in queue]
        losses.append(-torch.log(positive / (positive + sum(negatives))))
    return mean(losses)


def regression(p: Tensor, t: Tensor) -> Tensor:
    """BYOL, equation 2: the squared distance of the unit vectors."""
    differences = unit(p) - unit(t.detach())
    return mean([row.dot(row) for row in differences])


def sinkhorn(scores: np.ndarray) -> np.ndarray:
    """SwAV's published pseudo-code: (N, K) scores to codes whose rows sum to 1."""
    q = np.exp(scores / 0.05).T
    q /= q.sum()
    k, n = q.shape
    for _ in range(3):
        q *= ((1.0 / k) / q.sum(axis=1))[:, None]
        q *= ((1.0 / n) / q.sum(axis=0))[None, :]
    return (q / q.sum(axis=0)).T


def swapped_prediction(
    z: list[Tensor], prototypes: Tensor, temperature: float, queue: list[Tensor] | None = None
) -> Tensor:
    """SwAV with multi-crop: codes of the first two views, predicted from each other view."""
    scores = [unit(embedding) @ prototypes.T for embedding in z]
    losses = []
    for i in range(2):
        problem = scores[i].detach().numpy()
        if queue is not None:
            problem = np.concatenate([problem, (queue[i] @ prototypes.T).detach().numpy()])
        codes = torch.from_numpy(sinkhorn(problem)[: len(z[i])])
        for other in (v for v in range(len(z)) if v != i):
            for code, score in zip(codes, scores[other]):
                p = torch.exp(score / temperature) / torch.exp(score / temperature).sum()
                losses.append(-(code * p.log()).sum())
    return mean(losses)


def cross_correlation(z0: Tensor, z1: Tensor, redundancy: float) -> Tensor:
    """Barlow Twins, equations 1 and 2, standardised as the authors' BatchNorm does."""

    def column(z: Tensor, i: int) -> Tensor:
        centred = z[:, i] - z[:, i].mean()
        return centred / torch.sqrt(centred.square().mean() + 1e-5)

    total = z0.new_zeros(())
    for i in range(z0.shape[1]):
        for j in range(z0.shape[1]):
            c = (column(z0, i) * column(z1, j)).mean()
            total = total + ((1 - c) ** 2 if i == j else redundancy * c**2)
    return total


def vicreg(z0: Tensor, z1: Tensor) -> Tensor:
    """The authors' code: 25·mse + 25·(mean of both hinges) + covariances, over N − 1."""
    n, d = z0.shape
    invariance = sum((a - b).square().sum() for a, b in zip(z0, z1)) / (n * d)
    hinges, covariances = [], z0.new_zeros(())
    for z in (z0, z1):
        centred = z - z.sum(0) / n
        for i in range(d):
            variance = centred[:, i].dot(centred[:, i]) / (n - 1)
            hinges.append(torch.clamp(1 - torch.sqrt(variance + 1e-4), min=0))
            for j in (j for j in range(d) if j != i):
                covariance = centred[:, i].dot(centred[:, j]) / (n - 1)
                covariances = covariances + covariance**2 / d
    return 25 * invariance + 25 * mean(hinges) + covariances


def simclr_reference(nets: Any, x: list[Tensor]) -> Tensor:
    return nt_xent(*(nets.projection_head(nets.backbone(v)) for v in x), 0.5)


def moco_reference(nets: Any, x: list[Tensor]) -> Tensor:
    q = nets.projection_head(nets.backbone(x[0]))
    k = nets.key_head(nets.key_backbone(x[1]))
    return info_nce(q, k, list(nets.queue.rows), 0.2)


def byol_reference(nets: Any, x: list[Tensor]) -> Tensor:
    """Of the paper's loss L, summed over both directions, ours is (L − 4) / 4."""
    p0, p1 = (nets.prediction_head(nets.projection_head(nets.backbone(v))) for v in x)
    t0, t1 = (nets.target_head(nets.target_backbone(v)) for v in x)
    return (regression(p0, t1) + regression(p1, t0) - 4) / 4


def swav_reference(nets: Any, x: list[Tensor]) -> Tensor:
    z = [nets.projection_head(nets.backbone(v)) for v in x]
    return swapped_prediction(z, nets.prototypes.weight, 0.1)


def simsiam_reference(nets: Any, x: list[Tensor]) -> Tensor:
    """Algorithm 1: D(p, z) = −mean cos(p, stop-gradient z), halved and symmetric."""
    z0, z1 = (nets.projection_head(nets.backbone(v)) for v in x)
    p0, p1 = nets.prediction_head(z0), nets.prediction_head(z1)

    def d(p: Tensor, z: Tensor) -> Tensor:
        return -mean([cosine(a, b) for a, b in zip(p, z.detach())])

    return d(p0, z1) / 2 + d(p1, z0) / 2


def barlow_twins_reference(nets: Any, x: list[Tensor]) -> Tensor:
    return cross_correlation(*(nets.projection_head(nets.backbone(v)) for v in x), 5e-3)


def vicreg_reference(nets: Any, x: list[Tensor]) -> Tensor:
    return vicreg(*(nets.projection_head(nets.backbone(v)) for v in x))


def dino_reference(nets: Any, x: list[Tensor]) -> Tensor:
    """Algorithm 1 with multi-crop; the centre is what the method has before the step."""

    def scores(z: Tensor, prototypes: Any) -> Tensor:
        if hasattr(prototypes, "weight"):
            return unit(z) @ unit(prototypes.weight).T
        pairs = [[-(e * (row - c).norm()) ** 2 for c, e in zip(prototypes.kernels_centers,
                  prototypes.log_shapes.exp())] for row in unit(z)]  # fmt: skip
        return torch.stack([torch.stack(row) for row in pairs])

    losses = []
    for i in range(2):
        t = scores(nets.teacher_head(nets.teacher_backbone(x[i])), nets.teacher_prototypes).detach()
        weights = torch.exp((t - nets.center) / 0.04)
        weights = weights / weights.sum(1, keepdim=True)
        for j in (j for j in range(len(x)) if j != i):
            s = scores(nets.projection_head(nets.backbone(x[j])), nets.prototypes) / 0.1
            log_p = s - torch.log(torch.exp(s).sum(1, keepdim=True))
            losses.append(mean([-row.sum() for row in weights * log_p]))
    return mean(losses)


def nnclr_reference(nets: Any, x: list[Tensor]) -> Tensor:
    """The paper's pseudo-code, a sample at a time."""
    z = [nets.projection_head(nets.backbone(v)) for v in x]
    p = [unit(nets.prediction_head(e)) for e in z]

    def one_way(z: Tensor, p: Tensor) -> Tensor:
        losses = []
        for i, row in enumerate(unit(z.detach())):
            nearest = max(nets.queue.rows, key=lambda q: float(row.dot(q)))
            s = torch.stack([nearest.dot(candidate) / 0.1 for candidate in p])
            losses.append(-torch.log(s[i].exp() / s.exp().sum()))
        return mean(losses)

    return one_way(z[0], p[1]) / 2 + one_way(z[1], p[0]) / 2


def supervised_reference(nets: Any, x: list[Tensor]) -> Tensor:
    losses = []
    for view in x:
        logits = nets.classifier(nets.projection_head(nets.backbone(view)))
        for row, label in zip(logits, given("supervised", len(view))["labels"]):
            losses.append(-torch.log(row[label].exp() / row.exp().sum()))
    return mean(losses)


def supcon_reference(nets: Any, x: list[Tensor]) -> Tensor:
    """Equation 2 of the paper."""
    z = [*unit(nets.projection_head(nets.backbone(x[0])))]
    z += [*unit(nets.projection_head(nets.backbone(x[1])))]
    labels = given("supcon", len(x[0]))["labels"].tolist() * 2
    losses = []
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i]
        total = sum(torch.exp(z[i].dot(z[k]) / 0.1) for k in others)
        same = [k for k in others if labels[k] == labels[i]]
        losses.append(mean([-torch.log(torch.exp(z[i].dot(z[p]) / 0.1) / total) for p in same]))
    return mean(losses)


REFERENCES: dict[str, Callable[[Any, list[Tensor]], Tensor]] = {
    "simclr": simclr_reference,
    "moco": moco_reference,
    "byol": byol_reference,
    "swav": swav_reference,
    "simsiam": simsiam_reference,
    "barlow_twins": barlow_twins_reference,
    "vicreg": vicreg_reference,
    "dino": dino_reference,
    "nnclr": nnclr_reference,
    "supervised": supervised_reference,
    "supcon": supcon_reference,
}


# -- one step, every method -------------------------------------------------------------------


def perturbed(name: str, head: str, **options: Any) -> Method:
    """In float64, with momentum copies that differ from what they follow."""
    method = build(name, head, **options).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key, parameter in method.named_parameters():
            if key.startswith(MOMENTA):
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(0.1 * noise)
    return method


def samples(name: str, batch: int = 6, seed: int = 0, dtype: Any = torch.float64) -> list[Tensor]:
    return views(batch, CROPS.get(name, 2), seed=seed, dtype=dtype)


def check_gradients(ours: nn.Module, reference: nn.Module, rtol: float = 1e-5) -> None:
    for (key, mine), theirs in zip(ours.named_parameters(), reference.parameters()):
        if not mine.requires_grad:
            assert mine.grad is None
            continue
        assert mine.grad is not None
        assert theirs.grad is not None
        atol = 1e-12 + rtol * float(theirs.grad.abs().max())
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=rtol, atol=atol, msg=key)


@pytest.mark.parametrize(("name", "head"), CASES)
def test_loss_and_gradients_are_those_of_the_paper(name: str, head: str) -> None:
    method, x = perturbed(name, head), samples(name)
    nets = copy.deepcopy(method)
    expected = REFERENCES[name](nets, x)
    expected.backward()
    output = method(x, **given(name, len(x[0])))
    output.loss.backward()
    torch.testing.assert_close(output.loss, expected, rtol=1e-9, atol=1e-12)
    assert float(sum(p.grad.abs().sum() for p in method.backbone.parameters())) > 1e-4
    check_gradients(method, nets)


@pytest.mark.parametrize(("name", "head"), CASES)
def test_single_precision_gives_the_same_loss(name: str, head: str) -> None:
    """Cosines of order 1 can cancel to a mean near 0, where rounding is all but relative."""
    method = build(name, head)
    expected = REFERENCES[name](copy.deepcopy(method).double(), samples(name)).item()
    x = samples(name, dtype=torch.float32)
    loss = method(x, **given(name, len(x[0]))).loss.item()
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)


# -- lightly's losses on the same embeddings --------------------------------------------------


def lightly_loss(method: Any, x: list[Tensor]) -> Tensor:
    """What LightlySSL's own loss makes of the method's networks."""
    z = [method.projection_head(method.backbone(v)) for v in x]
    if method.name == "simclr":
        return NTXentLoss(temperature=0.5)(*z)
    if method.name == "moco":
        criterion = NTXentLoss(temperature=0.2, memory_bank_size=(10, DIM)).double()
        criterion.memory_bank.bank = method.queue.rows.clone()
        return criterion(z[0], method.key_head(method.key_backbone(x[1])))
    if method.name == "swav":
        scores = [nn.functional.normalize(e, dim=1) @ method.prototypes.weight.T for e in z]
        return SwaVLoss()(scores[:2], scores[2:]).squeeze(0)
    if method.name in ("byol", "simsiam"):
        t = z
        if method.name == "byol":
            t = [method.target_head(method.target_backbone(v)) for v in x]
        p, d = [method.prediction_head(e) for e in z], NegativeCosineSimilarity()
        return 0.5 * (d(p[0], t[1].detach()) + d(p[1], t[0].detach()))
    if method.name == "dino":
        t = [method.teacher_head(method.teacher_backbone(v)) for v in x[:2]]
        criterion = DINOLoss(12).double()
        t, s = ([f(e) for e in es] for f, es in (
            (method.teacher_prototypes, t), (method.prototypes, z)))  # fmt: skip
        return criterion(t, s)
    return {"barlow_twins": BarlowTwinsLoss, "vicreg": VICRegLoss}[method.name]()(*z)


# LightlySSL's NNCLR has other negatives than the paper's; the anchors are not there.
OWN = [case for case in CASES if case[0] not in ("nnclr", "supervised", "supcon")]


@pytest.mark.parametrize(("name", "head"), OWN)
def test_loss_and_gradients_are_those_of_lightly(name: str, head: str) -> None:
    method, x = perturbed(name, head), samples(name)
    nets = copy.deepcopy(method)
    expected = lightly_loss(nets, x)
    expected.backward()
    loss = method(x, **given(name, len(x[0]))).loss
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0.0)
    check_gradients(method, nets)


# -- MoCo: queue and key encoder --------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 4, 5, 7])
@pytest.mark.parametrize("size", [1, 4, 10])
def test_queue_is_first_in_first_out(size: int, batch: int) -> None:
    queue = Queue(size, 3)
    rows, pointer = [row.clone() for row in queue.rows], 0
    for count in range(1, 8):
        new = torch.randn(batch, 3)
        queue.put(new)
        if batch > size:  # only the newest are kept, the oldest of them first
            rows = [rows[(pointer + i) % size] for i in range(size)]
            rows, pointer = [*rows, *new][-size:], 0
            at = int(queue.pointer) % size
            torch.testing.assert_close(queue.rows.roll(-at, 0), torch.stack(rows))
        else:
            for row in new:
                rows[pointer], pointer = row, (pointer + 1) % size
            torch.testing.assert_close(queue.rows, torch.stack(rows))
        assert queue.full == (count * batch >= size)


def test_queue_starts_with_random_directions() -> None:
    queue = Queue(64, 5)
    torch.testing.assert_close(queue.rows.norm(dim=1), torch.ones(64))
    assert float(queue.rows.mean(0).norm()) < 0.3
    assert not queue.full


def ema(before: dict[str, Tensor], student: dict[str, Tensor], m: float) -> dict[str, np.ndarray]:
    """m·teacher + (1 − m)·student in NumPy; counters are copied."""
    return {
        key: m * value.numpy() + (1 - m) * student[key].numpy()
        if value.is_floating_point()
        else student[key].numpy()
        for key, value in before.items()
    }


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def check_state(module: nn.Module, expected: dict[str, np.ndarray]) -> None:
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(value.numpy(), expected[key], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("head", HEADS)
def test_moco_over_several_steps(head: str) -> None:
    """Queue of 10, batches of 4: it wraps on the third step."""
    method: Any = perturbed("moco", head, momentum=0.9)
    optimizer = torch.optim.SGD((p for p in method.parameters() if p.requires_grad), lr=0.1)
    rows, pointer = [row.clone() for row in method.queue.rows], 0
    for index in range(4):
        x = samples("moco", 4, seed=index)
        nets = copy.deepcopy(method)
        q = nets.projection_head(nets.backbone(x[0]))
        k = nets.key_head(nets.key_backbone(x[1]))
        expected = info_nce(q, k, rows, 0.2).detach()
        torch.testing.assert_close(step(method, optimizer, x, 0.25 * index), expected)
        for key in unit(k):
            rows[pointer], pointer = key, (pointer + 1) % 10
        torch.testing.assert_close(method.queue.rows, torch.stack(rows))
        for copied, student in (("key_backbone", "backbone"), ("key_head", "projection_head")):
            followed = ema(snapshot(getattr(nets, copied)), snapshot(getattr(method, student)), 0.9)
            check_state(getattr(method, copied), followed)


# -- BYOL: the schedule and what follows it ---------------------------------------------------


@pytest.mark.parametrize(
    ("progress", "momentum"),
    [(0.0, 0.996), (0.5, 0.998), (1.0, 1.0), (-0.1, 0.996), (1.1, 1.0), (1 / 3, 0.997)],
)
def test_byol_momentum_follows_half_a_cosine(progress: float, momentum: float) -> None:
    assert cosine_momentum(0.996, progress) == pytest.approx(momentum, abs=1e-12)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("progress", "momentum"), [(0.0, 0.9), (0.5, 0.95), (1.0, 1.0)])
def test_byol_targets_follow_with_their_batch_norm(
    head: str, progress: float, momentum: float
) -> None:
    method: Any = perturbed("byol", head, momentum=0.9)
    method(samples("byol"))  # the student's and the target's statistics part
    with torch.no_grad():
        for parameter in method.backbone.parameters():
            parameter.add_(1.0)
    before = [snapshot(method.target_backbone), snapshot(method.target_head)]
    assert "1.running_var" in before[0]
    method.after_step(progress)
    check_state(method.target_backbone, ema(before[0], snapshot(method.backbone), momentum))
    check_state(method.target_head, ema(before[1], snapshot(method.projection_head), momentum))


@pytest.mark.parametrize("head", HEADS)
def test_byol_paper_loss_is_four_plus_four_of_ours(head: str) -> None:
    method, x = perturbed("byol", head), samples("byol")
    nets: Any = copy.deepcopy(method)
    p0, p1 = (nets.prediction_head(nets.projection_head(nets.backbone(v))) for v in x)
    t0, t1 = (nets.target_head(nets.target_backbone(v)) for v in x)
    cosines = [cosine(p, t) for p, t in zip([*p0, *p1], [*t1, *t0])]
    paper = 2 * mean([2 - 2 * c for c in cosines])  # both directions summed
    torch.testing.assert_close(4 + 4 * method(x).loss, paper)


# -- SimSiam: the stop-gradient ---------------------------------------------------------------


def test_simsiam_gradient_is_not_that_without_the_stop() -> None:
    method: Any = perturbed("simsiam", "default")
    x = samples("simsiam")
    method(x).loss.backward()
    nets = copy.deepcopy(method)
    nets.zero_grad()
    z0, z1 = (nets.projection_head(nets.backbone(v)) for v in x)
    pairs = zip([*nets.prediction_head(z0), *nets.prediction_head(z1)], [*z1, *z0])
    (-mean([cosine(p, z) for p, z in pairs])).backward()
    with pytest.raises(AssertionError):
        check_gradients(method.backbone, nets.backbone)


# -- SwAV: prototypes, queue, precision -------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_swav_prototypes_are_unit_vectors_without_bias_frozen_at_first(head: str) -> None:
    method: Any = perturbed("swav", head, frozen=0.5)
    assert method.prototypes.bias is None
    optimizer = torch.optim.SGD(method.parameters(), lr=0.5, weight_decay=1e-2)
    start = method.prototypes.weight.detach().clone()
    for progress, moved in ((0.0, False), (0.49, False), (0.5, True), (0.9, True)):
        step(method, optimizer, samples("swav", seed=3), progress)
        weight = method.prototypes.weight.detach()
        ones = torch.ones(len(weight), dtype=torch.float64)
        assert (method.prototypes.weight.grad is not None) == moved
        torch.testing.assert_close(weight.square().sum(1), ones)
        assert bool((weight - start).abs().max() > 1e-6) == moved


@pytest.mark.parametrize("head", HEADS)
def test_swav_queue_joins_once_it_is_full(head: str) -> None:
    """8 rows in batches of 4: full after two steps, wrapped on the third."""
    method: Any = perturbed("swav", head, queue_size=8)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    earlier: list[tuple[Tensor, Tensor]] = []
    for index in range(4):
        x = samples("swav", 4, seed=index)
        nets = copy.deepcopy(method)
        z = [nets.projection_head(nets.backbone(v)) for v in x]
        queue = None
        if len(earlier) >= 8:
            queue = [torch.stack(side) for side in zip(*earlier[-8:])]
        expected = swapped_prediction(z, nets.prototypes.weight, 0.1, queue).detach()
        without = swapped_prediction(z, nets.prototypes.weight, 0.1).detach()
        assert torch.isclose(expected, without, rtol=1e-6) == (index < 2)
        torch.testing.assert_close(step(method, optimizer, x, 0.25 * index), expected)
        earlier += zip(unit(z[0].detach()), unit(z[1].detach()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head", HEADS)
def test_swav_sinkhorn_is_finite_in_half_precision(head: str, dtype: torch.dtype) -> None:
    """exp(1 / 0.05) is 5e8, far beyond float16."""
    method: Any = build("swav", head, queue_size=4)
    with torch.no_grad():  # scores of 1, the largest there are
        z = method.eval().project(samples("swav", dtype=torch.float32)[0])
        method.prototypes.weight[:6] = nn.functional.normalize(z, dim=1)
    method.train()
    for index in range(2):  # the second time with the queue
        x = samples("swav", seed=index, dtype=torch.float32)
        with torch.autocast("cpu", dtype=dtype):
            output = method(x)
        output.loss.backward()
        assert output.loss.dtype == torch.float32
        assert bool(output.loss.isfinite())
        assert all(bool(p.grad.isfinite().all()) for p in method.parameters())


# -- DINO: teacher, centre, kernels for prototypes ----------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_dino_over_several_steps(head: str) -> None:
    """Centre by the teacher's scores before the step, teacher by the student after it."""
    method: Any = perturbed("dino", head, frozen=0.3)
    optimizer = torch.optim.SGD((p for p in method.parameters() if p.requires_grad), lr=0.1)
    for index in range(3):
        x, progress = samples("dino", 4, seed=index), 0.25 * index
        nets = copy.deepcopy(method)
        expected = dino_reference(nets, x).detach()
        torch.testing.assert_close(step(method, optimizer, x, progress), expected)
        nets = copy.deepcopy(nets)
        seen = [nets.teacher_prototypes(nets.teacher_head(nets.teacher_backbone(v))) for v in x[:2]]
        center = 0.9 * nets.center + 0.1 * torch.cat(seen).mean(0)
        torch.testing.assert_close(method.center, center)
        moved = any((a != b).any() for a, b in zip(
            method.prototypes.parameters(), nets.prototypes.parameters()))  # fmt: skip
        assert moved == (progress >= 0.3)
        m = cosine_momentum(0.9, progress)
        followed = ema(snapshot(nets.teacher_prototypes), snapshot(method.prototypes), m)
        check_state(method.teacher_prototypes, followed)


def test_dino_with_kernels_begins_as_dino_with_cosines() -> None:
    """On the unit sphere with ε = 1/√2, −(ε‖z − c‖)² = cos − 1, and softmax takes no constant."""
    cosines: Any = build("dino", "default", radial=False).double()
    kernels: Any = build("dino", "default", radial=True).double()
    x = samples("dino")
    losses = []
    for method in (cosines, kernels):
        directions = nn.functional.normalize(torch.eye(12, DIM, dtype=torch.float64) + 0.1, dim=1)
        for own in (method.prototypes, method.teacher_prototypes):
            next(own.parameters()).data.copy_(directions)
        losses.append(method(x).loss)
    torch.testing.assert_close(losses[1], losses[0])


# -- NNCLR: neighbours and their queue -----------------------------------------------------------


def test_nnclr_looks_for_neighbours_among_earlier_images() -> None:
    method: Any = perturbed("nnclr", "default")
    x = samples("nnclr", 4)
    rows = method.queue.rows.clone()
    twin = copy.deepcopy(method)
    z = unit(twin.projection_head(twin.backbone(x[0])).detach())
    for row, found in zip(z, method.neighbours(z)):
        torch.testing.assert_close(found, max(rows, key=lambda q, r=row: float(r.dot(q))))
    nets = copy.deepcopy(method)
    method(x)
    z0 = unit(nets.projection_head(nets.backbone(x[0])))
    torch.testing.assert_close(method.queue.rows[:4], z0)
    torch.testing.assert_close(method.queue.rows[4:], rows[4:])
    method.eval()
    method(x)
    torch.testing.assert_close(method.queue.rows[4:], rows[4:])  # validation leaves it alone


# -- the anchors ----------------------------------------------------------------------------------


def test_supcon_with_a_label_for_every_image_is_simclr() -> None:
    method, x = perturbed("supcon", "default", temperature=0.5), samples("supcon")
    z = [method.project(view) for view in x]
    loss = method(x, labels=torch.arange(len(x[0]))).loss
    torch.testing.assert_close(loss, NTXentLoss(temperature=0.5)(*z), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("name", ["supervised", "supcon"])
def test_anchors_need_labels(name: str) -> None:
    with pytest.raises(ValueError, match="needs labels"):
        build(name, "default")(samples(name, dtype=torch.float32))


# -- the loss of a collapsed network ----------------------------------------------------------


class Constant(nn.Module):
    """The same vector for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.out_features = DIM
        self.vector = nn.Parameter(torch.randn(DIM))

    def forward(self, x: Tensor) -> Tensor:
        return self.vector + 0.0 * x.sum(1, keepdim=True)


def collapsed(name: str, **options: Any) -> Method:
    heads = [Constant()]
    if METHODS[name].predicts:
        heads.append(copy.deepcopy(heads[0]))
    return METHODS[name](Backbone(), *heads, **options)


@pytest.mark.parametrize("batch", [4, 8])
@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("swav", "dino", "supervised")])
def test_constant_loss(name: str, batch: int) -> None:
    method = collapsed(name, **({"queue_size": 8} if name in ("moco", "nnclr") else {}))
    for index in range(2):  # fills the queues
        method(samples(name, batch, seed=index, dtype=torch.float32), **given(name, batch))
    x = samples(name, batch, seed=2, dtype=torch.float32)
    loss = method(x, **given(name, batch)).loss.item()
    assert loss == pytest.approx(method.constant_loss(batch), rel=1e-4)


def test_constant_loss_of_swav() -> None:
    """ln K with scores all equal; at least ln K with any prototypes."""
    method: Any = collapsed("swav", prototypes=6)
    x = samples("swav", dtype=torch.float32)
    expected = math.log(6)
    assert method.constant_loss(6) == pytest.approx(expected)
    assert method(x).loss.item() >= expected - 1e-5
    with torch.no_grad():
        vector = method.projection_head.vector
        weight = method.prototypes.weight
        weight -= torch.outer(weight @ vector, vector) / vector.dot(vector)  # orthogonal to it
        method.normalize_prototypes()
    assert method(x).loss.item() == pytest.approx(expected, rel=1e-4)


def test_constant_loss_of_dino() -> None:
    """The centre comes to be what the teacher always says; then it is even, and so at best ln K."""
    method: Any = collapsed("dino", prototypes=6)
    x = samples("dino", dtype=torch.float32)
    for _ in range(200):
        method(x)
    assert method.constant_loss(6) == pytest.approx(math.log(6))
    assert method(x).loss.item() >= math.log(6) - 1e-4
    with torch.no_grad():
        vector, weight = method.projection_head.vector, method.prototypes.weight
        weight -= torch.outer(weight @ vector, vector) / vector.dot(vector)
    assert method(x).loss.item() == pytest.approx(math.log(6), rel=1e-3)


def test_constant_loss_of_cross_entropy() -> None:
    method: Any = collapsed("supervised", classes=3)
    with torch.no_grad():
        method.classifier.weight.zero_()
        method.classifier.bias.zero_()
    x = samples("supervised", dtype=torch.float32)
    loss = method(x, **given("supervised", len(x[0]))).loss.item()
    assert loss == pytest.approx(method.constant_loss(6)) == pytest.approx(math.log(3))


def test_every_method_has_a_reference() -> None:
    assert set(REFERENCES) == set(METHODS)
