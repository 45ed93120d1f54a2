"""Nearest neighbours: accuracy of frozen features without training anything.

Legend: N training samples, M test samples, F features, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from radial.checks import check_number, check_size


@torch.no_grad()
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
    """Weighted vote of the k training samples with the largest cosine, exp(cosine / temperature).

    As in Wu et al., 2018, https://arxiv.org/abs/1805.01978, with the k and temperature given
    here (theirs: 200 and 0.07). Samples without a label (−1) take no part.
    """
    check_size("k", k)
    check_number("temperature", temperature, low=1e-6)
    train, train_labels = train[train_labels >= 0], train_labels[train_labels >= 0]
    test, test_labels = test[test_labels >= 0], test_labels[test_labels >= 0]
    if not len(train) or not len(test):
        raise ValueError("nearest neighbours need labelled samples in both parts")
    train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    classes = int(torch.max(train_labels.max(), test_labels.max())) + 1
    correct = 0
    for x, labels in zip(test.split(chunk), test_labels.split(chunk)):
        cosine, neighbours = (x @ train.T).topk(min(k, len(train)), dim=1)
        weights = torch.exp((cosine - 1.0) / temperature)
        votes = torch.zeros(len(x), classes, dtype=weights.dtype, device=x.device)
        votes.scatter_add_(1, train_labels[neighbours], weights)
        correct += int((votes.argmax(1) == labels).sum())
    return correct / len(test)
