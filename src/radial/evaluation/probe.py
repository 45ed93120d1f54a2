"""Logistic regression on frozen features."""

from __future__ import annotations

from torch import Tensor, nn

from radial.data.images import Data
from radial.evaluation.features import extract


def probe(backbone: nn.Module, data: Data) -> float:
    """Accuracy on the test split of a regression on frozen features of the train split."""
    data.require_labels()
    assert data.train.labels is not None
    assert data.test.labels is not None
    train, test = (extract(backbone, images, data) for images in (data.train, data.test))
    return logistic_regression(train, data.train.labels, test, data.test.labels)


def logistic_regression(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, strength: float = 1.0
) -> float:
    """Accuracy on the test samples of a multinomial regression fitted to convergence.

    Features are standardised by the training samples; ``strength`` is scikit-learn's C.
    Samples without a label (−1) take no part.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, train_labels = train[train_labels >= 0], train_labels[train_labels >= 0]
    test, test_labels = test[test_labels >= 0], test_labels[test_labels >= 0]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000))
    model.fit(train.double().numpy(), train_labels.numpy())
    return float(model.score(test.double().numpy(), test_labels.numpy()))
