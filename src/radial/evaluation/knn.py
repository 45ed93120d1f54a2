"""Nearest neighbours: accuracy of frozen features without training anything.

Legend: N training samples, M test samples, F features, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from radial.checks import check_number, check_size
from radial.evaluation.classification import Part, labelled

_ROWS = 16_384  # training samples of a block: with 2,048 test samples, cosines of 128 MiB


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
        cosine, neighbours = _nearest(F.normalize(x, dim=1), known, k)
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
    """Cosines (B, k), descending, and labels of the samples nearest to unit x (B, F)."""
    cosine = x.new_empty(len(x), 0)
    neighbours = known.labels.new_empty(len(x), 0)
    for block, labels in zip(known.x.split(_ROWS), known.labels.split(_ROWS)):
        near = (x @ F.normalize(block.to(x), dim=1).T).topk(min(k, len(block)), dim=1)
        cosine = torch.cat([cosine, near.values], dim=1)
        neighbours = torch.cat([neighbours, labels[near.indices]], dim=1)
        best = cosine.topk(min(k, cosine.shape[1]), dim=1)
        cosine, neighbours = best.values, neighbours.gather(1, best.indices)
    return cosine, neighbours


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
    """The accuracy of :func:`knn`; NaN where features are not finite, as in a diverged run."""
    parts = (train, train_labels, test, test_labels)
    if not all(bool(x[labels >= 0].isfinite().all()) for x, labels in zip(parts[::2], parts[1::2])):
        return math.nan
    return knn(*parts, k=k, temperature=temperature, chunk=chunk).accuracy
