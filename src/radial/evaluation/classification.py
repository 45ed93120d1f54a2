"""Labelled samples, the vote of nearest neighbours, and what predictions are worth.

Legend: N (training) samples, D features, M test samples, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from radial.checks import check_finite, check_number, check_size, check_tensor

RESAMPLES = 2000  # of the bootstrap
_ROWS = 16_384  # training samples of a block: with 2,048 test samples, cosines of 128 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """One class; 0 where a figure would divide by 0, as scikit-learn's zero_division=0."""

    name: str
    support: int  # test samples of this class
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class Classification:
    accuracy: float
    low: float  # of the accuracy: 95 % bootstrap interval over the test samples
    high: float
    precision: float  # macro, as recall and f1: the mean over classes that occur in test
    recall: float
    f1: float
    top5: float | None  # None where a classifier knows no more than five classes
    per_class: tuple[ClassScore, ...]
    confusion: list[list[int]]  # (K, K), rows the true classes, columns the predicted


def classification(
    predicted: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    *,
    top5: float | None = None,
    seed: int = 0,
) -> Classification:
    """Scores of predicted classes (M,) against labels (M,), both in 0…K−1.

    Macro averages go over the classes that occur among labels or predictions, like
    scikit-learn's.

    >>> found = classification(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), ["cat", "dog"])
    >>> found.accuracy, found.recall, found.confusion
    (0.6666666666666666, 0.75, [[1, 1], [0, 1]])
    """
    if not len(labels) or predicted.shape != labels.shape:
        shapes = f"{tuple(predicted.shape)} predictions and {tuple(labels.shape)} labels"
        raise ValueError(f"scores need as many predictions as labels, at least one: not {shapes}")
    k = len(classes)
    for name, values in (("predictions", predicted), ("labels", labels)):
        if int(values.min()) < 0 or int(values.max()) >= k:
            limits = f"{int(values.min())} to {int(values.max())}"
            raise ValueError(f"{name} must lie in 0 to {k - 1}, not {limits}")
    confusion = torch.bincount(labels * k + predicted, minlength=k * k).reshape(k, k).cpu()
    hits = confusion.diagonal().double()
    support, claimed = confusion.sum(1), confusion.sum(0)
    precision, recall = hits / claimed.clamp(min=1), hits / support.clamp(min=1)
    f1 = 2.0 * hits / (support + claimed).clamp(min=1)
    occurs = support + claimed > 0
    right = int(hits.sum())
    low, high = accuracy_interval(right, len(labels), seed=seed)
    return Classification(
        accuracy=right / len(labels),
        low=low,
        high=high,
        precision=float(precision[occurs].mean()),
        recall=float(recall[occurs].mean()),
        f1=float(f1[occurs].mean()),
        top5=top5,
        per_class=tuple(
            ClassScore(name=name, support=int(n), precision=float(p), recall=float(r), f1=float(f))
            for name, n, p, r, f in zip(classes, support, precision, recall, f1)
        ),
        confusion=confusion.tolist(),
    )


def accuracy_interval(right: int, samples: int, *, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the accuracy over resampled test samples.

    M samples drawn with replacement from M of which R are right hold Binomial(M, R/M) right
    ones. So 2,000 resamples are 2,000 draws of one number, with nothing approximated. It says
    how far the accuracy depends on which test samples were taken, not on which training
    samples or which pre-training; where all samples are right (or wrong), it has no width.
    """
    share = torch.full((RESAMPLES,), right / samples, dtype=torch.float64)
    count = torch.full_like(share, samples)
    drawn = torch.binomial(count, share, generator=Generator().manual_seed(seed)) / samples
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


@dataclass(frozen=True, eq=False)
class Part:
    """Labelled samples."""

    x: Tensor  # (N, D) float32 or float64
    labels: Tensor  # (N,) int64, ≥ 0, where x is


def to_about_one(x: Tensor, dim: int) -> Tensor:
    """What brings the largest along ``dim`` to between ½ and 1: a power of two, so exact.

    Squares of float32 features near 1e20 would overflow, those near 1e-25 vanish.
    """
    low, high = torch.aminmax(x, dim=dim, keepdim=True)
    peak = torch.maximum(-low, high).clamp_(min=torch.finfo(x.dtype).tiny)
    return torch.frexp(peak).mantissa / peak


def labelled(**parts: tuple[Tensor, Tensor]) -> list[Part]:
    """Of each part's features and labels, the samples that have one (−1: none), checked."""
    found = [_labelled(name, x, labels) for name, (x, labels) in parts.items()]
    widths = {name: part.x.shape[1] for name, part in zip(parts, found)}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise ValueError(f"all parts must have the same number of features, not {listed}")
    return found


def _labelled(name: str, x: Tensor, labels: Tensor) -> Part:
    check_tensor(name, x)
    if x.dim() != 2 or not x.shape[1]:
        raise ValueError(f"{name} features must have shape (N, D), not {tuple(x.shape)}")
    if not len(x):
        raise ValueError(f"{name} has no samples")
    whole = isinstance(labels, Tensor) and not labels.is_floating_point()
    if not whole or labels.shape != x.shape[:1]:
        given = type(labels).__name__
        if isinstance(labels, Tensor):
            given = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise ValueError(f"labels of {name} must be {len(x)} integers, one a sample, not {given}")
    labels = labels.to(x.device).long()
    has = labels >= 0
    if not bool(has.any()):
        raise ValueError(f"{name} has no labels: probes and neighbours need labelled samples")
    if not bool(has.all()):
        x, labels = x[has], labels[has]
    check_finite(f"{name} features", x)
    x = x.detach()
    return Part(x if x.dtype in (torch.float32, torch.float64) else x.float(), labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class KNNResult:
    accuracy: float
    top5: float | None  # None where there are no more than five classes in train
    k: int  # neighbours that voted: no more than there are
    temperature: float
    samples: int  # labelled test samples


@torch.no_grad()
def knn(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.1,
    chunk: int = 2048,
) -> KNNResult:
    """Weighted vote of the k training samples with the largest cosine, exp(cosine / temperature).

    As in Wu et al., 2018, https://arxiv.org/abs/1805.01978, with the k and temperature given
    here (theirs: 200 and 0.07). Samples without a label (−1) take no part; a class of test that
    train does not have counts as an error. A sample is right in the top five if its class is
    one of the five with most votes, and has a vote.

    Works in blocks of ``chunk`` test samples and 16,384 training samples, keeping the k best so
    far: beside the features it needs the cosines of one block, whatever N and M are.

    >>> x, labels = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    >>> knn(x, labels, x, labels, k=3).accuracy
    1.0
    """
    check_size("k", k)
    check_size("chunk", chunk)
    check_number("temperature", temperature, low=1e-6)
    known, asked = labelled(train=(train, train_labels), test=(test, test_labels))
    classes = torch.unique(known.labels)
    if len(classes) < 2:
        only = f"class {int(classes[0])} only"
        raise ValueError(f"nearest neighbours need two classes in train, not {only}")
    width = int(torch.maximum(classes[-1], asked.labels.max())) + 1
    right = five = 0
    for x, labels in zip(asked.x.split(chunk), asked.labels[:, None].split(chunk)):
        cosine, neighbours = _nearest(_unit(x), known, k)
        weights = torch.exp((cosine - cosine[:, :1]) / temperature)
        votes = weights.new_zeros(len(x), width).scatter_add_(1, neighbours, weights)
        right += int((votes.argmax(1, keepdim=True) == labels).sum())
        best = votes.topk(min(5, width), dim=1)
        five += int(((best.indices == labels) & (best.values > 0.0)).sum())
    return KNNResult(
        accuracy=right / len(asked.x),
        top5=five / len(asked.x) if len(classes) > 5 else None,
        k=min(k, len(known.x)),
        temperature=temperature,
        samples=len(asked.x),
    )


def _nearest(x: Tensor, known: Part, k: int) -> tuple[Tensor, Tensor]:
    """Cosines (B, k), descending, and labels of the samples nearest to unit x (B, D)."""
    cosine = x.new_empty(len(x), 0)
    neighbours = known.labels.new_empty(len(x), 0)
    for block, labels in zip(known.x.split(_ROWS), known.labels.split(_ROWS)):
        near = (x @ _unit(block.to(x)).T).topk(min(k, len(block)), dim=1)
        cosine = torch.cat([cosine, near.values], dim=1)
        neighbours = torch.cat([neighbours, labels[near.indices]], dim=1)
        best = cosine.topk(min(k, cosine.shape[1]), dim=1)
        cosine, neighbours = best.values, neighbours.gather(1, best.indices)
    return cosine, neighbours


def _unit(x: Tensor) -> Tensor:
    """Rows of length 1."""
    return F.normalize(x * to_about_one(x, dim=1), dim=1)


def knn_accuracy(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.1,
    chunk: int = 2048,
) -> float:
    """The accuracy of `knn`; NaN where features are not finite, as in a diverged run."""
    parts = (train, train_labels, test, test_labels)
    if not all(bool(x[labels >= 0].isfinite().all()) for x, labels in zip(parts[::2], parts[1::2])):
        return math.nan
    return knn(*parts, k=k, temperature=temperature, chunk=chunk).accuracy
