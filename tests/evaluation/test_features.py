"""Features, neighbours and the probe, against scikit-learn and by hand."""

from __future__ import annotations

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from radial.data import load_data
from radial.evaluation.features import extract
from radial.evaluation.knn import knn_accuracy
from radial.evaluation.probe import logistic_regression


def test_extract_normalises_in_order_and_leaves_the_mode() -> None:
    data = load_data("digits")
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5), nn.Dropout(0.5)).train()
    features = extract(backbone, data.val, data, batch=100)
    images = torch.stack([data.val[i] for i in range(len(data.val))]) / 255.0
    images = (images - data.mean[:, None, None]) / data.std[:, None, None]
    with torch.no_grad():
        expected = backbone[1](images.flatten(1))
    torch.testing.assert_close(features, expected)
    assert backbone.training


def test_neighbours_agree_with_scikit_learn(generator) -> None:
    centers = torch.randn(3, 8, generator=generator)
    labels = torch.arange(300) % 3
    x = centers[labels] + 1.2 * torch.randn(300, 8, generator=generator)
    train, test = x[:200], x[200:]
    unit = nn.functional.normalize(x, dim=1)
    peer = KNeighborsClassifier(
        n_neighbors=7, metric="cosine", weights=lambda d: torch.exp(-torch.tensor(d) / 0.1).numpy()
    ).fit(unit[:200], labels[:200])
    expected = peer.score(unit[200:], labels[200:])
    found = knn_accuracy(train, labels[:200], test, labels[200:], k=7, temperature=0.1, chunk=33)
    assert found == pytest.approx(expected)
    assert 0.4 < found < 1.0


def test_samples_without_a_label_take_no_part() -> None:
    x = torch.eye(4).repeat(5, 1)
    labels = torch.arange(4).repeat(5)
    hidden = labels.clone()
    hidden[:4] = -1
    assert knn_accuracy(x, hidden, x, labels, k=3) == 1.0
    assert logistic_regression(x, hidden, x, hidden) == 1.0
    with pytest.raises(ValueError, match="need labelled samples"):
        knn_accuracy(x, torch.full((20,), -1), x, labels)
