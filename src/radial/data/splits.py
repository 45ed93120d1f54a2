"""Which images train, validate and test: by the dataset's own split or by 70/10/20.

Both are drawn by scikit-learn's ``train_test_split``, stratified by class, so that anyone can
draw them again: first the 20 % of test, then val as an eighth of the rest. N images.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from radial.checks import DataError
from radial.data.images import Collection

TEST_SHARE = 0.2
VAL_SHARE_OF_REST = 0.125  # 10 % of all
VAL_SHARE_OF_TRAIN = 0.1  # where the dataset comes with train and test


@dataclass(frozen=True, kw_only=True)
class Split:
    train: Tensor  # rows, ascending
    val: Tensor
    test: Tensor
    description: str

    def without(self, rows: list[int]) -> Split:
        """The same split of the images that are left; nothing else moves."""
        if not rows:
            return self
        gone = torch.tensor(rows)
        kept = {part: _minus(getattr(self, part), gone) for part in ("train", "val", "test")}
        for part, left in kept.items():
            if not len(left):
                raise DataError(f"no readable image is left in the {part} split")
        return Split(**kept, description=self.description)


def split_paper(collection: Collection, seed: int) -> Split:
    """70/10/20 of all labelled images, stratified; of all images where none is labelled."""
    labels = collection.labels
    rows = torch.arange(len(collection.store))
    kind = "random 70/10/20" if labels is None else "stratified 70/10/20"
    if labels is not None and (labels < 0).any():
        rows = rows[labels >= 0]
        kind += " of the labelled images"
    rest, test = _halves(rows, TEST_SHARE, collection, seed)
    train, val = _halves(rest, VAL_SHARE_OF_REST, collection, seed)
    return Split(train=train, val=val, test=test, description=f"{kind}, seed {seed}")


def split_own(collection: Collection, seed: int) -> Split:
    """The dataset's own split; what it lacks is made up for as follows.

    Without val, val is 10 % of train (of its labelled part, stratified). Without test, its
    val is the test split, as is usual for ImageNet, and val is again 10 % of train.
    """
    parts = dict(collection.parts or {})
    notes = []
    if "test" not in parts:
        parts["test"] = parts.pop("val")
        notes.append("test: its val")
    if "val" not in parts:
        train, labels = parts["train"], collection.labels
        labelled = labels is not None and bool((labels[train] >= 0).any())
        pool = train[labels[train] >= 0] if labelled and labels is not None else train
        part = "labelled train" if len(pool) < len(train) else "train"
        parts["val"] = _halves(pool, VAL_SHARE_OF_TRAIN, collection, seed)[1]
        parts["train"] = _minus(train, parts["val"])
        drawn = "stratified" if labelled else "random"
        notes.append(f"val: 10 % of {part}, {drawn}, seed {seed}")
    note = f" ({'; '.join(notes)})" if notes else ""
    return Split(**parts, description=f"the dataset's own{note}")


def hash_order(names: Iterable[str], seed: int) -> list[str]:
    """Sorted by sha256 of ``seed/id``, the id being the name of the file without its suffix."""
    return sorted(names, key=lambda name: (digest(f"{seed}/{Path(name).stem}"), name))


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def _halves(rows: Tensor, share: float, collection: Collection, seed: int) -> tuple[Tensor, Tensor]:
    from sklearn.model_selection import train_test_split

    labels = None if collection.labels is None else collection.labels[rows]
    strata = None if labels is None or (labels < 0).any() else labels.numpy()
    try:
        rest, drawn = train_test_split(
            rows.numpy(), test_size=share, random_state=seed, stratify=strata
        )
    except ValueError:
        raise DataError(_too_few(rows, labels, share, collection.classes)) from None
    return torch.from_numpy(rest).sort().values, torch.from_numpy(drawn).sort().values


def _too_few(rows: Tensor, labels: Tensor | None, share: float, classes: tuple[str, ...]) -> str:
    if labels is None or (labels < 0).any():
        return f"{len(rows)} images are too few to take {share:.3g} of them for another split"
    smallest, count = Counter(labels.tolist()).most_common()[-1]
    return (
        f"class {classes[smallest]!r} has only {count} of "
        f"{len(rows)} images: too few to take {share:.3g} of each class for another split; "
        "10 images a class are always enough"
    )


def _minus(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)]
