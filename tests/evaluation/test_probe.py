"""Probes: the optimum against scikit-learn and scipy, protocols against plain loops."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support, top_k_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import radial.evaluation.logistic as module
from radial.data import load_data
from radial.evaluation.classification import Part
from radial.evaluation.features import extract
from radial.evaluation.logistic import Regression, leading_directions
from radial.evaluation.probe import (
    exact_probe,
    fit_sgd,
    paper_probe,
    probe,
    probe_backbone,
    standardised,
)


def samples(generator, n: int, d: int, k: int, apart: float = 1.0, seed_labels: bool = True):
    """Class means and correlated noise, positive and uneven in scale."""
    labels = torch.randint(k, (n,), generator=generator)
    if seed_labels:
        labels[:k] = torch.arange(k)
    means = apart * torch.randn(k, d, generator=generator)
    noise = torch.randn(n, d // 2, generator=generator) @ torch.randn(
        d // 2, d, generator=generator
    )
    scale = torch.exp(torch.randn(d, generator=generator))
    return scale * torch.relu(means[labels] + 0.5 * noise), labels


def three_parts(generator, n=400, d=24, k=8, **more):
    x, labels = samples(generator, n + 400, d, k, **more)
    sizes = [n, 150, 250]
    return [t for pair in zip(x.split(sizes), labels.split(sizes)) for t in pair]


@pytest.mark.parametrize("scale", [1e20, 1e-25])
def test_scale_makes_no_difference_even_where_float32_cannot_hold_squares(scale, generator) -> None:
    """At 1e20 all variances were inf, all features 0: chance, called converged."""
    parts = three_parts(generator, apart=2.0)
    scaled = [x * scale if x.is_floating_point() else x for x in parts]
    usual, found = exact_probe(*parts), exact_probe(*scaled)
    assert usual.accuracy > 0.8
    assert found.converged
    assert found.accuracy == pytest.approx(usual.accuracy, abs=0.01)
    exact = 2.0**70  # rounds nothing, so nothing may differ
    (one,), (other,) = (standardised(Part(x, parts[1])) for x in (parts[0], parts[0] * exact))
    assert torch.equal(one.x, other.x)


def objective(weight, bias, x, y, strength: float) -> float:
    """scikit-learn's, in float64; for two classes by its one vector."""
    w, b, x = (np.asarray(t, dtype=np.float64) for t in (weight, bias, x))
    if len(w) == 1:
        w, b = np.concatenate([-w / 2.0, w / 2.0]), np.array([-b[0] / 2.0, b[0] / 2.0])
        factor = 2.0
    else:
        factor = 2.0 if len(w) == 2 else 1.0
    logits = x @ w.T + b
    loss = (logsumexp(logits, axis=1) - logits[np.arange(len(x)), np.asarray(y)]).mean()
    return float(loss + factor * (w**2).sum() / (2.0 * strength * len(x)))


def standard(x: torch.Tensor) -> torch.Tensor:
    return standardised(Part(x, torch.zeros(len(x), dtype=torch.int64)))[0].x


# ---- the optimum


@pytest.mark.parametrize("directions", [128, 5])  # all of the features, or few
@pytest.mark.parametrize("k", [2, 3, 9])
@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_reaches_the_optimum_of_scikit_learn(k, strength, directions, generator, monkeypatch):
    monkeypatch.setattr(module, "_DIRECTIONS", directions)
    x, y = samples(generator, 300, 20, k, apart=0.4)
    x = standard(x)
    fit = Regression(x, y).fit(strength)
    peer = LogisticRegression(C=strength, tol=1e-9, max_iter=10_000)
    peer.fit(x.double().numpy(), y.numpy())
    expected = objective(peer.coef_, peer.intercept_, x, y, strength)
    found = objective(fit.weight, fit.bias, x, y, strength)
    assert fit.converged
    assert -1e-6 < found - expected < 3e-5  # a goal of 1e-5, estimated to a factor of about two
    assert fit.loss == pytest.approx(found, abs=2e-6)
    assert (fit.iterations > 0) == (directions == 5)


def test_float64_equals_scipy_on_a_small_problem(generator) -> None:
    x, y = samples(generator, 40, 6, 3, apart=0.5)
    x, strength = standard(x.double()), 0.7
    one_hot = np.eye(3)[y.numpy()]

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        theta = theta.reshape(3, 7)
        logits = x.numpy() @ theta[:, :6].T + theta[:, 6]
        p = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
        f = -np.log(p[one_hot > 0]).mean() + (theta[:, :6] ** 2).sum() / (2 * strength * 40)
        slope = (p - one_hot).T @ np.hstack([x.numpy(), np.ones((40, 1))]) / 40
        slope[:, :6] += theta[:, :6] / (strength * 40)
        return f, slope.ravel()

    best = minimize(value, np.zeros(21), jac=True, method="BFGS", options={"gtol": 1e-10})
    fit = Regression(x, y).fit(strength, tolerance=1e-14)
    assert fit.loss == pytest.approx(best.fun, abs=1e-12)
    assert fit.weight.numpy() == pytest.approx(best.x.reshape(3, 7)[:, :6], abs=1e-5)
    logits = x.numpy() @ best.x.reshape(3, 7)[:, :6].T + best.x.reshape(3, 7)[:, 6]
    ours, theirs = fit.logits(x).numpy(), logits
    assert ours - ours[:, :1] == pytest.approx(theirs - theirs[:, :1], abs=1e-5)


def test_the_estimated_gap_is_near_the_true_one(generator, monkeypatch) -> None:
    monkeypatch.setattr(module, "_DIRECTIONS", 16)
    x, y = samples(generator, 500, 64, 10, apart=0.4)
    x = standard(x)
    best = Regression(x.double(), y).fit(0.05, tolerance=1e-12)
    for tolerance in (1e-2, 1e-3, 1e-4, 1e-5):
        fit = Regression(x, y).fit(0.05, tolerance=tolerance)
        assert fit.gap <= tolerance
        assert -1e-6 < fit.loss - best.loss < 2.5 * fit.gap


def test_a_path_is_the_same_as_single_fits_and_cheaper(generator, monkeypatch) -> None:
    monkeypatch.setattr(module, "_DIRECTIONS", 16)
    x, y = samples(generator, 400, 96, 10, apart=0.4)
    regression = Regression(standard(x), y)
    strengths = [10.0 ** (i / 3.0) / 96 for i in range(10)]
    path = list(regression.path(reversed(strengths)))
    single = [regression.fit(strength) for strength in strengths]
    assert [fit.strength for fit in path] == strengths
    for a, b in zip(path, single):
        assert a.converged
        assert a.loss == pytest.approx(b.loss, abs=2e-5)
    assert sum(fit.all_iterations for fit in path) < sum(fit.all_iterations for fit in single)


def test_too_few_iterations_are_no_convergence(generator, monkeypatch) -> None:
    monkeypatch.setattr(module, "_DIRECTIONS", 4)
    x, y = samples(generator, 200, 32, 5)
    fit = Regression(standard(x), y).fit(1.0, max_iterations=2)
    assert not fit.converged
    assert fit.gap > 1e-5
    assert fit.iterations == 2


def test_what_float32_cannot_reach_is_given_up(generator) -> None:
    x, y = samples(generator, 200, 16, 3)
    fit = Regression(standard(x), y).fit(1e-2, tolerance=1e-30)
    assert not fit.converged
    assert fit.gap < 1e-6


def test_leading_directions_are_those_of_the_covariance(generator) -> None:
    x = torch.randn(300, 40, generator=generator) * torch.logspace(1, -3, 40)
    directions, variances, shadow = leading_directions(x, 6)
    torch.testing.assert_close(shadow, x @ directions, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(directions.T @ directions, torch.eye(6), atol=1e-5, rtol=0.0)
    expected = torch.linalg.eigvalsh(x.T @ x / 300).flip(0)[:6]
    torch.testing.assert_close(variances[:2], expected[:2], rtol=0.02, atol=0.0)
    assert bool((variances <= 1.001 * expected).all())  # Cauchy's interlacing


def test_standardised_like_scikit_learn_and_0_where_constant(generator) -> None:
    x = 5.0 + torch.randn(50, 4, generator=generator)
    x[:, 1] = 0.1  # whose mean is not exact in float32
    x[:, 2] = 0.0
    other = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    none = torch.zeros(50, dtype=torch.int64)
    train, test = standardised(Part(x, none), Part(other, none[:7]))
    scaler = StandardScaler().fit(x[:, [0, 3]].double())
    assert train.x[:, [0, 3]].numpy() == pytest.approx(scaler.transform(x[:, [0, 3]]), abs=1e-5)
    assert test.x[:, [0, 3]].numpy() == pytest.approx(scaler.transform(other[:, [0, 3]]), abs=1e-5)
    assert train.x[:, 1:3].abs().max() == 0.0
    assert test.x[:, 1:3].abs().max() == 0.0
    assert test.x.dtype == torch.float32


# ---- the exact protocol


def test_exact_agrees_with_scikit_learn(generator) -> None:
    parts = three_parts(generator, apart=0.3)
    found = exact_probe(*parts)
    x, y, val, y_val, test, y_test = (np.asarray(t) for t in parts)
    scaler = StandardScaler().fit(x.astype(np.float64))
    peers = {
        tried.strength: LogisticRegression(C=tried.strength, tol=1e-8, max_iter=10_000).fit(
            scaler.transform(x), y
        )
        for tried in found.path
    }
    for tried in found.path:  # within two samples of 150: 1e-4 nats can move some
        expected = peers[tried.strength].score(scaler.transform(val), y_val)
        assert tried.accuracy == pytest.approx(expected, abs=2.01 / 150)
    accuracies = [tried.accuracy for tried in found.path]
    assert found.strength == found.path[accuracies.index(max(accuracies))].strength
    peer = peers[found.strength]
    predicted = peer.predict(scaler.transform(test))
    assert found.accuracy == pytest.approx((predicted == y_test).mean(), abs=1.01 / 250)
    macro = precision_recall_fscore_support(y_test, predicted, average="macro", zero_division=0.0)
    assert (found.precision, found.recall, found.f1) == pytest.approx(macro[:3], abs=0.01)
    scores = peer.decision_function(scaler.transform(test))
    assert found.top5 == pytest.approx(top_k_accuracy_score(y_test, scores, k=5), abs=0.0041)
    assert found.low < found.accuracy < found.high
    assert np.asarray(found.confusion).sum() == found.test_samples == 250
    assert (found.train_samples, found.val_samples) == (400, 150)
    assert 0.3 < found.accuracy < 1.0
    assert found.converged


def test_the_path_ends_where_accuracy_has_clearly_fallen(generator) -> None:
    """Half of the training labels are wrong: weak penalties learn them by heart."""
    parts = three_parts(generator, n=120, d=100, k=3, apart=2.0)
    wrong = torch.rand(120, generator=generator) < 0.5
    parts[1] = torch.where(wrong, torch.randint(3, (120,), generator=generator), parts[1])
    found = exact_probe(*parts)
    best = max(tried.accuracy for tried in found.path)
    assert len(found.path) < 10
    allowed = 2.0 * math.sqrt(best * (1.0 - best) / 150)
    assert found.path[-1].accuracy < best - allowed
    assert all(tried.accuracy >= best - allowed for tried in found.path[3:-1])
    assert found.strength < found.path[-1].strength


def test_deterministic_and_only_the_interval_depends_on_the_seed(generator) -> None:
    parts = three_parts(generator)
    first, again, other = (exact_probe(*parts, seed=seed).to_dict() for seed in (0, 0, 1))
    for result in (first, again, other):
        del result["seconds"]
    assert first == again
    differ = {name for name in first if first[name] != other[name]}
    assert differ <= {"seed", "low", "high"}
    assert first["low"] != other["low"] or first["high"] != other["high"]


def test_result_is_ready_for_json(generator) -> None:
    names = [f"class {i}" for i in range(8)]
    found = probe(*three_parts(generator), classes=names, strengths=[0.01, 0.1])
    written = found.to_dict()
    assert json.loads(json.dumps(written)) == written
    assert written["protocol"] == "exact"
    assert [tried["strength"] for tried in written["path"]] == [0.01, 0.1]
    assert [row["name"] for row in written["per_class"]] == names
    assert "standardised" in written["assumptions"]
    assert "not refitted" in written["assumptions"]


def test_classes_that_train_does_not_have_count_as_errors(generator) -> None:
    x, y, val, y_val, test, y_test = three_parts(generator, k=4)
    known = y != 2
    found = exact_probe(x[known], y[known], val, y_val, test, y_test)
    assert found.per_class[2].recall == 0.0
    assert found.per_class[2].support == int((y_test == 2).sum()) > 0
    assert [row[2] for row in found.confusion] == [0, 0, 0, 0]
    assert found.top5 is None
    rest = exact_probe(x[known], y[known], val, y_val, test[y_test != 2], y_test[y_test != 2])
    right = rest.accuracy * rest.test_samples / found.test_samples
    assert found.accuracy == pytest.approx(right)


def test_constant_features_and_missing_labels_do_no_harm(generator) -> None:
    parts = three_parts(generator)
    expected = exact_probe(*parts)
    padded = [torch.cat([x, x.new_full((len(x), 2), 0.1)], 1) for x in parts[::2]]
    padded[2][:, -1] = 7.0  # constant in train only
    hidden = [torch.cat([labels, labels.new_full((5,), -1)]) for labels in parts[1::2]]
    longer = [torch.cat([x, x[:5]]) for x in padded]
    given = [t for pair in zip(longer, hidden) for t in pair]
    strengths = [tried.strength for tried in expected.path]
    found = exact_probe(*given, strengths=strengths)
    assert found.accuracy == pytest.approx(expected.accuracy, abs=1.01 / 250)
    assert found.train_samples == 400


def test_features_without_content_give_the_largest_class(generator) -> None:
    labels = torch.tensor([0] * 30 + [1] * 10)
    x = torch.ones(40, 3)
    assert exact_probe(x, labels, x, labels, x, labels).accuracy == 0.75


def test_fewer_samples_than_features(generator) -> None:
    parts = three_parts(generator, n=40, d=300, k=3)
    found = exact_probe(*parts)
    assert found.converged
    assert found.accuracy > 0.5


def test_one_strength(generator) -> None:
    parts = three_parts(generator)
    x, y, _, _, test, y_test = parts
    found = exact_probe(*parts, strengths=[1.0])
    fitting, testing = standardised(Part(x, y), Part(test, y_test))
    predicted = Regression(fitting.x, y).fit(1.0).logits(testing.x).argmax(1)
    assert found.accuracy == float((predicted == y_test).double().mean())
    assert len(found.path) == 1


# ---- the paper's protocol


def test_paper_equals_a_plain_loop(generator) -> None:
    x, labels = samples(generator, 300, 12, 3, apart=0.5)
    rest, test = train_test_split(np.arange(300), test_size=0.2, random_state=7, stratify=labels)
    rest = np.sort(rest)
    train, val = train_test_split(rest, test_size=0.125, random_state=7, stratify=labels[rest])
    train, val, test = (torch.from_numpy(np.sort(rows)) for rows in (train, val, test))
    torch.manual_seed(7)
    layer = nn.Linear(12, 3)
    orders = torch.Generator().manual_seed(7)
    rate, best, bad = 1e-3, math.inf, 0
    for _ in range(40):
        order = train[torch.randperm(len(train), generator=orders)]
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            loss = nn.functional.cross_entropy(layer(x[rows]), labels[rows])
            grads = torch.autograd.grad(loss, (layer.weight, layer.bias))
            with torch.no_grad():
                for parameter, grad in zip((layer.weight, layer.bias), grads):
                    parameter -= rate * (grad + 1e-4 * parameter)
        with torch.no_grad():
            value = float(nn.functional.cross_entropy(layer(x[val]), labels[val]))
        best, bad = (value, 0) if value < best * (1.0 - 1e-4) else (best, bad + 1)
        if bad > 10:
            rate, bad = 0.1 * rate, 0
    found = fit_sgd(x[train], labels[train], x[val], labels[val], seed=7, epochs=40)
    torch.testing.assert_close(found.weight, layer.weight.detach(), atol=1e-6, rtol=1e-4)
    result = paper_probe(x, labels, seed=7, epochs=40)
    expected = float((layer(x[test]).argmax(1) == labels[test]).double().mean())
    assert result.accuracy == pytest.approx(expected)
    assert (result.train_samples, result.val_samples, result.test_samples) == (210, 30, 60)
    assert result.iterations == 40 * 4
    assert (result.strength, result.path, result.converged) == (None, (), False)
    assert "plain SGD" in result.assumptions
    assert "70/10/20" in result.assumptions


def test_the_learning_rate_falls_on_a_plateau(generator) -> None:
    """Validation labels turned round: their loss rises at once, and soon nothing moves."""
    x = 3.0 * torch.randn(64, 30, generator=generator)
    y = torch.randint(2, (64,), generator=generator)
    short, long = (fit_sgd(x, y, x, 1 - y, epochs=epochs) for epochs in (60, 200))
    torch.testing.assert_close(short.weight, long.weight, atol=1e-5, rtol=0.0)
    falling = fit_sgd(x, y, x, y, epochs=60)
    assert float((falling.weight - short.weight).abs().max()) > 0.01


def test_paper_looks_at_the_test_part_only_and_repeats_itself(generator) -> None:
    x, labels = samples(generator, 150, 8, 3)
    torch.manual_seed(1)
    first = paper_probe(x, labels, epochs=3)
    torch.manual_seed(2)
    elsewhere = torch.full((20, 8), 9.0)
    ones = torch.arange(20) % 3
    state = torch.get_rng_state()
    again = probe(elsewhere, ones, elsewhere, ones, x, labels, protocol="paper")
    assert torch.equal(torch.get_rng_state(), state)
    assert again.iterations == 200 * 2
    assert again.train_samples == first.train_samples == 105
    once_more = paper_probe(x, labels, epochs=3)
    assert once_more.confusion == first.confusion


# ---- a backbone and data


def test_backbone_and_data() -> None:
    data = load_data("digits")
    backbone = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 40), nn.ReLU())
    found = probe_backbone(backbone, data)
    assert found.accuracy > 0.8
    assert found.train_samples == len(data.train)
    assert [row.name for row in found.per_class] == list(data.classes)
    parts = [
        tensor
        for images in (data.train, data.val, data.test)
        for tensor in (extract(backbone, images, data), images.labels)
    ]
    assert exact_probe(*parts, classes=data.classes).confusion == found.confusion
    with pytest.raises(ValueError, match="unknown protocol 'fast'; known: 'exact', 'paper'"):
        probe_backbone(backbone, data, protocol="fast")


# ---- what is refused

X, Y = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
GIVEN = {"train": X, "train_labels": Y, "val": X, "val_labels": Y, "test": X, "test_labels": Y}
RARE = torch.tensor([0] * 15 + [1] * 14 + [2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "fast"}, "unknown protocol 'fast'; known: 'exact', 'paper'"),
        ({"protocol": "paper", "strengths": [1.0]}, "strengths belong to protocol 'exact'"),
        ({"train_labels": Y * 0 - 1}, "train has no labels"),
        ({"val_labels": Y * 0 - 1}, "val has no labels"),
        ({"train_labels": Y * 0 + 2}, "two classes in its training part, not class 2 only"),
        ({"test": X * math.nan}, "test features: 120 of 120 values are NaN or inf"),
        ({"val": X[:, :3]}, "same number of features, not train 4, val 3, test 4"),
        ({"test": X[:0], "test_labels": Y[:0]}, "test has no samples"),
        ({"train_labels": Y[:9]}, "labels of train must be 30 integers"),
        ({"strengths": []}, "strengths must name at least one"),
        ({"strengths": [0.0, 1.0]}, "strength must be a finite number of at least 1e-300, not 0.0"),
        ({"strengths": [1.0, math.inf]}, "strength must be a finite number .* not inf"),
        ({"classes": ["cat", "dog"]}, "label 2 has no name among 2 classes"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"protocol": "paper", "test_labels": RARE}, "class '2' has only 1 of 30 images: too few"),
        ({"protocol": "paper", "test_labels": Y * 0}, "two classes in its training part"),
    ],
)
def test_bad_input(changes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        probe(**{**GIVEN, **changes})
    assert "\n" not in str(caught.value)


def test_few_labels_give_what_scikit_learn_gives() -> None:
    from sklearn.linear_model import LogisticRegression

    from radial.evaluation.probe import few_label_probe

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    x = torch.randn(300, 8, generator=generator) + 1.5 * torch.eye(3, 8)[labels]
    few = torch.where(torch.arange(300) < 30, labels, -1)
    found = few_label_probe(x, few, x[150:], labels[150:])
    assert (found.train_samples, found.test_samples) == (30, 150)
    known, asked = x[:30].double().numpy(), x[150:].double().numpy()
    mean, deviation = known.mean(0), known.std(0)
    model = LogisticRegression(C=10.0 / 8, tol=1e-8, max_iter=1000)
    model.fit((known - mean) / deviation, labels[:30].numpy())
    exact = model.score((asked - mean) / deviation, labels[150:].numpy())
    assert found.accuracy == pytest.approx(exact, abs=1 / 150)
    everything = few_label_probe(x[:150], labels[:150], x[150:], labels[150:])
    assert everything.accuracy >= found.accuracy  # 150 labels in place of 30
