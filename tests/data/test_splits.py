"""Splits: shares, strata, what is carved out of what."""

from __future__ import annotations

import pytest
import torch

from radial.data import DataError, load_data
from radial.data.images import Collection, Split, split_own, split_paper


def collection(counts: list[int], unlabelled: int = 0, **parts: torch.Tensor) -> Collection:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = torch.cat([labels, torch.full((unlabelled,), -1)])
    return Collection(
        store=torch.zeros(len(labels), 3, 1, 1, dtype=torch.uint8),
        labels=labels,
        classes=tuple("abcdefghij"[: len(counts)]),
        parts=parts or None,
    )


def assert_partition(split: Split, rows: torch.Tensor) -> None:
    joined = torch.cat([split.train, split.val, split.test])
    assert torch.equal(joined.sort().values, rows)


@pytest.mark.parametrize("counts", [[10, 10], [100, 50, 30], [10] * 10, [7, 300], [40]])
def test_paper_split_is_stratified_and_covers_everything(counts: list[int]) -> None:
    data = collection(counts)
    split = split_paper(data, seed=42)
    assert split.description == "stratified 70/10/20, seed 42"
    assert_partition(split, torch.arange(sum(counts)))
    assert data.labels is not None
    for part, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
        found = data.labels[getattr(split, part)].bincount(minlength=len(counts))
        assert (found - share * torch.tensor(counts)).abs().max() <= 1.5, part


def test_digits_per_class() -> None:
    data = load_data("digits")
    labels = [part.labels for part in (data.train, data.val, data.test)]
    counts = torch.stack([part.bincount() for part in labels if part is not None]).double()
    shares = counts / counts.sum(0)
    assert (shares - torch.tensor([0.7, 0.1, 0.2])[:, None]).abs().max() < 0.01


def test_unlabelled_images_are_split_at_random_or_as_a_class_of_their_own() -> None:
    plain = Collection(store=torch.zeros(50, 3, 1, 1, dtype=torch.uint8))
    split = split_paper(plain, seed=3)
    assert split.description == "random 70/10/20, seed 3"
    assert_partition(split, torch.arange(50))
    mixed = split_paper(collection([20, 20], unlabelled=100), seed=42)
    assert mixed.description == "stratified 70/10/20, seed 42"
    assert_partition(mixed, torch.arange(140))
    assert int((mixed.test >= 40).sum()) == 20


def test_own_split_whole() -> None:
    train, val, test = torch.arange(20), torch.arange(20, 25), torch.arange(25, 30)
    split = split_own(collection([15, 15], train=train, val=val, test=test), seed=42)
    assert split.description == "the dataset's own"
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [
        part.tolist() for part in (train, val, test)
    ]


@pytest.mark.parametrize(
    ("held_out", "note"),
    [
        ("test", "val: 10 % of train, stratified, seed 42"),
        ("val", "test: its val; val: 10 % of train, stratified, seed 42"),
    ],
)
def test_own_split_without_val_or_test(held_out: str, note: str) -> None:
    last = torch.arange(80, 100)
    data = collection([50, 50], train=torch.arange(80), **{held_out: last})
    split = split_own(data, seed=42)
    assert split.description == f"the dataset's own ({note})"
    assert_partition(split, torch.arange(100))
    assert torch.equal(split.test, last)
    assert data.labels is not None
    assert data.labels[split.val].bincount().tolist() == [5, 3]


def test_own_split_with_unlabelled_training_images() -> None:
    data = collection([20, 20], unlabelled=100)
    parts = {"train": torch.arange(20, 140), "test": torch.arange(20)}
    split = split_own(Collection(**{**vars(data), "parts": parts}), seed=42)
    assert "val: 10 % of labelled train, stratified" in split.description
    assert len(split.val) == 2
    assert (split.val < 40).all()
    assert_partition(split, torch.arange(140))


@pytest.mark.parametrize("counts", [[1, 50], [3] * 10, [1]])
def test_too_few_images_name_the_class(counts: list[int]) -> None:
    data = collection(counts)
    if sum(counts) < 3:
        with pytest.raises(DataError, match="1 images are too few"):
            split_paper(data, seed=42)
        return
    split = split_paper(data, seed=42)
    assert_partition(split, torch.arange(sum(counts)))
    assert split.description.startswith("random 70/10/20, as some classes are too small")
    assert f"has only {min(counts)} of" in split.trouble  # told where labels are asked for


def test_too_few_unlabelled_images() -> None:
    with pytest.raises(DataError, match="1 images are too few"):
        split_paper(Collection(store=torch.zeros(1, 3, 1, 1, dtype=torch.uint8)), seed=42)


def test_leaving_images_out_moves_no_other() -> None:
    split = split_paper(collection([10, 10]), seed=42)
    gone = [int(split.train[0]), int(split.test[1])]
    less = split.without(gone)
    assert torch.equal(less.train, split.train[1:])
    assert torch.equal(less.val, split.val)
    assert gone[1] not in less.test
    with pytest.raises(DataError, match="no readable image is left in the val split"):
        split.without(split.val.tolist())
