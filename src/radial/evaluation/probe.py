"""Linear probes: a logistic regression on frozen features, by two protocols.

``exact``: fitted to convergence, the strength of its penalty chosen on the validation part.
``paper``: 200 epochs of SGD within the test split, as the paper on RBFN heads describes it.

Both work on tensors, where the features are. Samples without a label (−1) take no part.

Legend: N samples of a part, D features, K classes of the training part, C strength.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from radial.checks import DataError, check_choice, check_size
from radial.data.images import Collection, Data, split_paper
from radial.evaluation.classification import (
    Classification,
    Part,
    classification,
    labelled,
    to_about_one,
)
from radial.evaluation.features import extract
from radial.evaluation.logistic import TOLERANCE, Fit, Regression

PROTOCOLS = ("exact", "paper")
PATH_TOLERANCE = 1e-4  # nats, where strengths are only compared
FEW_VARIANCE = 10.0  # C·D where labels are few, the middle of the path below
PRIOR_VARIANCES = tuple(10.0 ** (-0.5 + 3.5 * i / 9.0) for i in range(10))  # C·D: 0.3 to 1000

EXACT = (
    "features standardised by the training part; L2 penalty chosen by accuracy on the "
    "validation part; weights of the training part alone, not refitted with validation; "
    f"within {TOLERANCE:g} nats of the optimum"
)
PAPER = (
    "the labelled test split divided 70/10/20, stratified; epochs, batch 64, learning rate 1e-3 "
    "and weight decay 1e-4 as published; assumed, since not published: plain SGD without "
    "momentum, ReduceLROnPlateau on the validation loss with torch's defaults, features not "
    "standardised, decay on the bias too, weights of the last epoch"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One strength of the path."""

    strength: float
    accuracy: float  # on the validation part
    iterations: int
    converged: bool


@dataclass(frozen=True, kw_only=True)
class ProbeResult(Classification):
    """A probe's scores on its test part, and what is needed to have them again."""

    protocol: str
    train_samples: int
    val_samples: int
    test_samples: int
    seed: int
    strength: float | None  # scikit-learn's C; None in the paper's protocol
    path: tuple[Tried, ...]  # strengths in the order tried
    iterations: int  # of L-BFGS in all, or steps of SGD
    converged: bool  # at the chosen strength; the paper's protocol just stops: False
    seconds: float  # features not included
    assumptions: str

    def to_dict(self) -> dict[str, Any]:
        """Of numbers, strings, lists and dictionaries."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found


def probe_backbone(
    backbone: nn.Module,
    data: Data,
    *,
    protocol: str = "exact",
    strengths: Sequence[float] | None = None,
    seed: int = 0,
) -> ProbeResult:
    """`probe` on features of the splits that the protocol uses."""
    _check_protocol(protocol, strengths)
    data.require_labels()
    parts: list[Tensor] = []
    for images in (data.train, data.val, data.test) if protocol == "exact" else (data.test,):
        assert images.labels is not None
        parts += [extract(backbone, images, data), images.labels]
    names = data.classes or None
    if protocol == "paper":
        return paper_probe(*parts, classes=names, seed=seed)
    return exact_probe(*parts, strengths=strengths, classes=names, seed=seed)


def probe(
    train: Tensor,
    train_labels: Tensor,
    val: Tensor,
    val_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    protocol: str = "exact",
    strengths: Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> ProbeResult:
    """By `exact_probe`, or by `paper_probe`, which looks at the test part only."""
    _check_protocol(protocol, strengths)
    if protocol == "paper":
        return paper_probe(test, test_labels, classes=classes, seed=seed)
    parts = (train, train_labels, val, val_labels, test, test_labels)
    return exact_probe(*parts, strengths=strengths, classes=classes, seed=seed)


def few_label_probe(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, seed: int = 0
) -> ProbeResult:
    """The exact probe where labels are few: one strength, C = 10/D, as none are left to choose by.

    Args:
        train: (N, D).
        train_labels: (N,), −1 for those that are not known.
        test: (M, D), what the accuracy is of.
        test_labels: (M,).
        seed: of the bootstrap.

    Returns:
        As `exact_probe`; its validation part is the test part, which decides nothing.

    Example:
        >>> x, y = torch.eye(3).repeat(6, 1), torch.arange(3).repeat(6)
        >>> few_label_probe(x, torch.where(torch.arange(18) < 3, y, -1), x, y).accuracy
        1.0
    """
    parts = (train, train_labels, test, test_labels, test, test_labels)
    return exact_probe(*parts, strengths=[FEW_VARIANCE / train.shape[1]], seed=seed)


@torch.no_grad()
def exact_probe(
    train: Tensor,
    train_labels: Tensor,
    val: Tensor,
    val_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    strengths: Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> ProbeResult:
    """Multinomial logistic regression with an L2 penalty, fitted to convergence.

    scikit-learn's objective, its optimum reached to 1e-5 nats of the mean training loss, see
    `radial.evaluation.logistic.Regression`. Features are standardised by the training part;
    those that are constant there become 0.

    The strength C is the one with the best accuracy on the validation part, the smallest where
    several share it, out of ten: C·D from 0.3 to 1000, evenly in log C. C is the variance of the
    weights' Gaussian prior, so C·D is that of a logit, and one grid serves all widths. From
    strong penalties to weak, each fit starts from the ones before and stops at 1e-4 nats; the
    chosen one goes on to 1e-5. The path ends early where the validation accuracy has fallen by
    more than two standard errors √(A(1 − A)/N) below its best, A. The weights are those fitted
    to the training part: no refit with validation.

    A class of val or test that train does not have is never predicted: its samples count as
    errors. The seed is only that of the bootstrap. Needs memory for a second, standardised copy
    of the features.
    """
    begin = time.perf_counter()
    check_size("seed", seed, minimum=0)
    parts = labelled(train=(train, train_labels), val=(val, val_labels), test=(test, test_labels))
    names = _names(classes, *parts)
    known, y = _known(parts[0])
    fitting, choosing, testing = standardised(*parts)
    grid = [v / train.shape[1] for v in PRIOR_VARIANCES] if strengths is None else strengths
    if not len(grid):
        raise ValueError("strengths must name at least one")
    best: Fit | None = None
    tried: list[Tried] = []
    top = -1.0
    regression = Regression(fitting.x, y)
    for fit in regression.path(grid, tolerance=PATH_TOLERANCE):
        accuracy = _accuracy(fit.logits(choosing.x), known, choosing.labels)
        tried.append(
            Tried(
                strength=fit.strength,
                accuracy=accuracy,
                iterations=fit.all_iterations,
                converged=fit.converged,
            )
        )
        if accuracy > top:
            best, top = fit, accuracy
        if accuracy < top - 2.0 * math.sqrt(top * (1.0 - top) / len(choosing.x)):
            break
    assert best is not None
    best = regression.fit(best.strength, start=(best.weight, best.bias))
    scores = _scores(best.logits(testing.x), known, testing.labels, names, seed)
    return ProbeResult(
        **vars(scores),
        protocol="exact",
        train_samples=len(fitting.x),
        val_samples=len(choosing.x),
        test_samples=len(testing.x),
        seed=seed,
        strength=best.strength,
        path=tuple(tried),
        iterations=sum(each.iterations for each in tried) + best.all_iterations,
        converged=best.converged,
        seconds=time.perf_counter() - begin,
        assumptions=EXACT,
    )


def paper_probe(
    x: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    epochs: int = 200,
) -> ProbeResult:
    """The paper's protocol on features x (N, D) of the labelled test split.

    Divided 70/10/20, stratified, by the seed, as `radial.data.images.split_paper` does;
    then `fit_sgd`. What is assumed because the paper does not say it stands in the
    result's ``assumptions``. Kept to compare with published figures: it has not converged, and
    of a dataset split 70/10/20 it trains on a fifth of the images that the exact protocol uses.
    """
    begin = time.perf_counter()
    check_size("seed", seed, minimum=0)
    check_size("epochs", epochs)
    (whole,) = labelled(test=(x, labels))
    names = _names(classes, whole)
    rows = split_paper(Collection(store=whole.x, labels=whole.labels.cpu(), classes=names), seed)
    if rows.trouble:
        raise DataError(rows.trouble)
    train, val, test = (
        Part(whole.x[index], whole.labels[index])
        for index in (part.to(x.device) for part in (rows.train, rows.val, rows.test))
    )
    known, y = _known(train)
    y_val = torch.searchsorted(known, val.labels)  # stratified: train has every class
    layer = fit_sgd(train.x, y, val.x, y_val, seed=seed, epochs=epochs)
    with torch.no_grad():
        scores = _scores(layer(test.x), known, test.labels, names, seed)
    return ProbeResult(
        **vars(scores),
        protocol="paper",
        train_samples=len(train.x),
        val_samples=len(val.x),
        test_samples=len(test.x),
        seed=seed,
        strength=None,
        path=(),
        iterations=epochs * math.ceil(len(train.x) / 64),
        converged=False,
        seconds=time.perf_counter() - begin,
        assumptions=PAPER,
    )


def fit_sgd(
    x: Tensor, y: Tensor, val: Tensor, y_val: Tensor, *, seed: int = 0, epochs: int = 200
) -> nn.Linear:
    """One linear layer by SGD: batch 64, learning rate 1e-3, weight decay 1e-4.

    y (N,) holds 0…K−1. The rate falls to a tenth when the validation loss has not for ten
    epochs (ReduceLROnPlateau with torch's defaults). torch's initial values and the orders of
    the epochs are drawn from the seed; batches are taken from the tensors in memory, the last
    one of an epoch may be smaller.
    """
    generator = Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(x.shape[1], int(y.max()) + 1, dtype=x.dtype)
    layer.to(x.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, weight_decay=1e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.randperm(len(x), generator=generator).to(x.device).split(64):
                optimizer.zero_grad()
                F.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                plateau.step(float(F.cross_entropy(layer(val), y_val)))
    return layer.requires_grad_(False)


def standardised(train: Part, *others: Part) -> list[Part]:
    """Mean 0 and variance 1 over train, and 0 where it is constant; all parts to where train is."""
    unit = to_about_one(train.x, dim=0)
    x = train.x * unit
    variance, mean = torch.var_mean(x, dim=0, correction=0)
    std = variance.sqrt()
    low, high = torch.aminmax(x, dim=0)
    varies = std > 10.0 * torch.finfo(std.dtype).eps * torch.maximum(-low, high)
    scale = torch.where(varies, 1.0 / std, 0.0)
    del x
    return [
        Part((part.x.to(mean) * unit).sub_(mean).mul_(scale), part.labels.to(mean.device))
        for part in (train, *others)
    ]


def _check_protocol(protocol: str, strengths: Sequence[float] | None) -> None:
    check_choice("protocol", protocol, PROTOCOLS)
    if protocol == "paper" and strengths is not None:
        raise ValueError("strengths belong to protocol 'exact'; 'paper' has one weight decay")


def _names(classes: Sequence[str] | None, *parts: Part) -> tuple[str, ...]:
    needed = max(int(part.labels.max()) for part in parts) + 1
    if classes is None:
        return tuple(str(label) for label in range(needed))
    if len(classes) < needed:
        raise ValueError(f"label {needed - 1} has no name among {len(classes)} classes")
    return tuple(classes)


def _known(train: Part) -> tuple[Tensor, Tensor]:
    """Classes of the training part (K,), ascending, and its labels as places among them."""
    known, y = torch.unique(train.labels, return_inverse=True)
    if len(known) < 2:
        only = f"class {int(known[0])} only"
        raise ValueError(f"a probe needs two classes in its training part, not {only}")
    return known, y


def _accuracy(logits: Tensor, known: Tensor, labels: Tensor) -> float:
    return int((known[logits.argmax(1)] == labels).sum()) / len(labels)


def _scores(
    logits: Tensor, known: Tensor, labels: Tensor, names: Sequence[str], seed: int
) -> Classification:
    top5 = None
    if len(known) > 5:
        hits = known[logits.topk(5, dim=1).indices] == labels[:, None]
        top5 = int(hits.sum()) / len(labels)
    return classification(known[logits.argmax(1)], labels, names, top5=top5, seed=seed)
