"""Scores of predictions, against scikit-learn and by hand; the interval against its law."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binom
from sklearn import metrics

from radial.evaluation.classification import accuracy_interval, classification, labelled


@pytest.mark.parametrize(
    ("k", "predicted_up_to"), [(2, 2), (7, 7), (7, 4)]
)  # the last one never predicts some classes
def test_agrees_with_scikit_learn(k: int, predicted_up_to: int, generator) -> None:
    labels = torch.randint(k, (200,), generator=generator)
    guess = torch.randint(predicted_up_to, (200,), generator=generator)
    predicted = torch.where(torch.rand(200, generator=generator) < 0.6, labels, guess)
    predicted = predicted.clamp(max=predicted_up_to - 1)
    found = classification(predicted, labels, [str(i) for i in range(k)])
    pair = labels.numpy(), predicted.numpy()
    assert found.accuracy == pytest.approx(metrics.accuracy_score(*pair))
    for average, values in (
        ("macro", (found.precision, found.recall, found.f1)),
        (None, tuple(zip(*((c.precision, c.recall, c.f1) for c in found.per_class)))),
    ):
        expected = metrics.precision_recall_fscore_support(
            *pair, average=average, zero_division=0.0
        )
        for ours, theirs in zip(values, expected):
            assert ours == pytest.approx(theirs, abs=1e-12)
    assert found.confusion == metrics.confusion_matrix(*pair).tolist()
    assert [c.support for c in found.per_class] == labels.bincount().tolist()


def test_macro_averages_leave_out_classes_that_do_not_occur() -> None:
    labels, predicted = torch.tensor([1, 1, 3]), torch.tensor([1, 3, 3])
    found = classification(predicted, labels, "abcdef")
    expected = metrics.f1_score(labels, predicted, average="macro", zero_division=0.0)
    assert found.f1 == pytest.approx(expected)
    assert [c.name for c in found.per_class] == list("abcdef")
    assert found.per_class[0].support == found.per_class[0].f1 == 0
    assert len(found.confusion) == 6


def test_interval_is_that_of_resampled_samples(generator) -> None:
    right, samples = 63, 90
    low, high = accuracy_interval(right, samples, seed=3)
    correct = (torch.arange(samples) < right).double()
    rows = torch.randint(samples, (20_000, samples), generator=generator)
    drawn = correct[rows].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    assert low == pytest.approx(float(drawn[0]), abs=1.5 / samples)
    assert high == pytest.approx(float(drawn[1]), abs=1.5 / samples)
    law = binom(samples, right / samples)
    assert low * samples == pytest.approx(law.ppf(0.025), abs=1.0)
    assert high * samples == pytest.approx(law.ppf(0.975), abs=1.0)
    assert (low, high) == accuracy_interval(right, samples, seed=3)


def test_interval_covers_the_true_accuracy() -> None:
    """In 95 % of draws; 400 of them have a standard error of 1.1 points."""
    truth, samples = 0.8, 300
    counts = torch.binomial(torch.full((400,), float(samples)), torch.full((400,), truth))
    covered = 0
    for i, count in enumerate(counts.tolist()):
        low, high = accuracy_interval(int(count), samples, seed=i)
        covered += low <= truth <= high
    assert 0.90 < covered / 400 < 0.99


def test_no_width_where_all_are_right() -> None:
    assert accuracy_interval(50, 50) == (1.0, 1.0)
    assert accuracy_interval(0, 50) == (0.0, 0.0)


def test_samples_without_a_label_are_left_out_and_half_precision_becomes_float32() -> None:
    x, labels = torch.arange(6.0).reshape(3, 2), torch.tensor([1, -1, 0])
    (part,) = labelled(train=(x.half(), labels.int()))
    assert part.x.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert (part.x.dtype, part.labels.dtype) == (torch.float32, torch.int64)
    assert part.labels.tolist() == [1, 0]


X, Y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classification(Y[:0], Y[:0], "ab"), r"at least one: not \(0,\) predictions"),
        (lambda: classification(Y[:3], Y, "ab"), r"\(3,\) predictions and \(4,\) labels"),
        (lambda: classification(Y, Y + 1, "ab"), "labels must lie in 0 to 1, not 1 to 2"),
        (lambda: classification(Y - 1, Y, "ab"), "predictions must lie in 0 to 1, not -1 to 0"),
        (lambda: labelled(val=(X[:0], Y[:0])), "val has no samples"),
        (lambda: labelled(val=(X, Y - 9)), "val has no labels: probes and neighbours need"),
        (lambda: labelled(val=(X[:, 0], Y)), r"val features must have shape \(N, D\), not \(4,\)"),
        (lambda: labelled(val=(X, Y[:3])), r"must be 4 integers, one a sample, not torch.int64 of"),
        (lambda: labelled(val=(X, Y.float())), "4 integers, one a sample, not torch.float32"),
        (lambda: labelled(val=(X, [0, 1, 0, 1])), "4 integers, one a sample, not list"),
        (lambda: labelled(val=(X.int(), Y)), "val must be a floating-point torch tensor"),
        (lambda: labelled(val=(X / 0.0, Y)), "val features: 12 of 12 values are NaN or inf"),
        (lambda: labelled(a=(X, Y), b=(X[:, :2], Y)), "same number of features, not a 3, b 2"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
