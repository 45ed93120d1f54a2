"""Nearest neighbours against scikit-learn, in blocks, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

import radial.evaluation.classification as module
from radial.evaluation.classification import knn, knn_accuracy


def clusters(generator, classes: int = 8, spread: float = 1.0):
    labels = torch.arange(400) % classes
    centers = torch.randn(classes, 6, generator=generator)
    x = centers[labels] + spread * torch.randn(400, 6, generator=generator)
    return x[:300], labels[:300], x[300:], labels[300:]


@pytest.mark.parametrize("rows", [16_384, 37, 4])
@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (9, 0.07), (50, 0.5)])
def test_agrees_with_scikit_learn(k, temperature, rows, generator, monkeypatch) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)  # blocks with fewer samples than k, too
    train, train_labels, test, test_labels = clusters(generator)
    peer = KNeighborsClassifier(
        n_neighbors=k, metric="cosine", weights=lambda d: np.exp(((1.0 - d) - 1.0) / temperature)
    ).fit(train.double(), train_labels)
    found = knn(
        train.double(), train_labels, test, test_labels, k=k, temperature=temperature, chunk=33
    )
    assert found.accuracy == peer.score(test.double(), test_labels)
    assert 0.3 < found.accuracy < 1.0
    proba = peer.predict_proba(test.double())
    order = np.argsort(-proba, axis=1, kind="stable")[:, :5]
    has_vote = np.take_along_axis(proba, order, 1) > 0
    expected = ((order == test_labels.numpy()[:, None]) & has_vote).any(1).mean()
    assert found.top5 == pytest.approx(expected)
    assert (found.k, found.temperature, found.samples) == (k, temperature, 100)
    parts = (train, train_labels, test, test_labels)
    assert knn_accuracy(*parts, k=k, temperature=temperature) == pytest.approx(
        found.accuracy,
        abs=0.011,  # float32 may order two neighbours differently
    )


@pytest.mark.parametrize("scale", [1e20, 1e-25])
def test_scale_makes_no_difference_even_where_float32_cannot_hold_squares(scale, generator) -> None:
    train, train_labels, test, test_labels = clusters(generator)
    usual = knn(train, train_labels, test, test_labels).accuracy
    assert usual > 0.5
    found = knn(train * scale, train_labels, test * scale, test_labels).accuracy
    assert found == pytest.approx(usual, abs=0.011)


def test_small_temperatures_do_not_underflow(generator) -> None:
    parts = clusters(generator)
    assert knn(*parts, k=20, temperature=1e-6).accuracy == knn(*parts, k=1).accuracy


def test_k_is_at_most_the_training_samples_and_few_classes_have_no_top5(generator) -> None:
    train, train_labels, test, test_labels = clusters(generator, classes=3)
    found = knn(train[:7], train_labels[:7], test, test_labels, k=20)
    assert found.k == 7
    assert found.top5 is None


def test_a_class_that_train_does_not_have_counts_as_an_error() -> None:
    x, labels = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    known = labels < 3
    assert knn(x[known], labels[known], x, labels, k=3).accuracy == 0.75


def test_diverged_features_give_no_accuracy_but_are_refused_by_name() -> None:
    x, labels = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    broken = x.clone()
    broken[0, :2] = math.nan
    assert math.isnan(knn_accuracy(x, labels, broken, labels))
    with pytest.raises(ValueError, match="test features: 2 of 80 values are NaN or inf"):
        knn(x, labels, broken, labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k must be an integer of at least 1, not 0"),
        ({"temperature": 0.0}, "temperature must be a finite number"),
        ({"chunk": 0}, "chunk must be an integer of at least 1"),
        ({"train_labels": torch.full((8,), -1)}, "train has no labels"),
        ({"train_labels": torch.full((8,), 2)}, "two classes in train, not class 2 only"),
        ({"test": torch.randn(8, 5)}, "same number of features, not train 4, test 5"),
    ],
)
def test_bad_input(changes, message: str) -> None:
    labels = torch.arange(8) % 2
    x = torch.randn(8, 4)
    given = {"train": x, "train_labels": labels, "test": x, "test_labels": labels, **changes}
    with pytest.raises(ValueError, match=message):
        knn(**given)
