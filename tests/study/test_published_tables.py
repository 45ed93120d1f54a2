"""studies/published_tables.py: the traps of the exports, what is refused, what is assumed."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from published_tables import published_table, read_pair
from study_cases import exported, published

TRAIN: dict[str, Any] = {
    "Run ID": "a1", "Name": "00001", "Status": "FINISHED", "Duration": "2.5h",
    "architecture": "simclr", "backbone": "resnet50", "weights": "DEFAULT",
    "dataset_name": "Pets", "base_learning_rate": "0.3", "learning_rate": "2.4",
    "weight_decay": "1e-06", "epochs": "100", "batch_size": "2048", "img_size": "224",
    "optimizer": "LARS", "momentum": "0.9", "normalize": "True", "temperature": "0.5",
    "projection_head_type": "rbfn", "projection_head_hidden_dim": "2048",
    "projection_head_output_dim": "128", "projection_head_num_layers": "3",
    "rbfn_projection_head_norm_function": "euclidian", "rbfn_projection_head_normalize": "False",
    "rbfn_projection_head_num_kernels": "256", "rbfn_projection_head_radial_function": "tps",
    "epoch": "99", "train_loss": "8.1", "val_loss": "8.2",
}  # fmt: skip
EVAL: dict[str, Any] = TRAIN | {
    "Run ID": "e1", "learning_rate": "0.001", "weight_decay": "0.0001", "epochs": "200",
    "epoch": "199", "train_loss": "0.6", "val_loss": "0.7",
    "test_MulticlassAccuracy": "0.5", "test_MulticlassF1Score": "0.4",
    "test_MulticlassPrecision": "0.45", "test_MulticlassRecall": "0.5",
}  # fmt: skip
Changes = list[dict[str, Any]]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., pd.DataFrame]:
    """The runs of tables made by changes to one good row each."""

    def make(train: Changes, tested: Changes | None = None) -> pd.DataFrame:
        paths = tmp_path / "t_pets.csv", tmp_path / "t-eval_pets.csv"
        for path, base, changes in zip(paths, (TRAIN, EVAL), (train, tested or train)):
            rows = [{**base, **change} for change in changes]
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        return read_pair(*paths)

    return make


def test_traps_of_the_export(read: Callable[..., pd.DataFrame]) -> None:
    changes: Changes = [
        {},
        {"Name": "00002", "architecture": "byol", "train_loss": "'-0.99", "temperature": "",
         "rbfn_projection_head_normalize": "True"},
        {"Name": "00003", "projection_head_type": "default"},
    ]  # fmt: skip
    runs = read(changes, [{k: v for k, v in c.items() if k != "train_loss"} for c in changes])
    first, second, third = (runs.loc[i] for i in range(3))
    assert (first.base_lr, first.weight_decay, first.epochs, first.epoch) == (0.3, 1e-6, 100, 100)
    assert (first["head"], first.radial_function, first.num_kernels) == ("rbfn-paper", "tps", 256)
    assert (first.distance, first.normalize, second.normalize) == ("euclidean", False, True)
    assert pd.isna(first.momentum)  # 0.9 is the optimiser's
    assert (second.momentum, second.train_loss) == (0.996, -0.99)
    assert (first.weights, first.optimizer, first.seconds) == ("IMAGENET1K_V2", "lars", 9000.0)
    assert [first[name] for name in ("accuracy", "precision", "recall", "f1")] == [
        0.5, 0.45, 0.5, 0.4,
    ]  # fmt: skip
    assert (third["head"], third.published_head, first.published_head) == ("default", True, False)
    assert pd.isna(third.radial_function)
    assert runs["index"].tolist() == [0, 1, 2]
    assert runs["run"].is_unique


def test_joined_by_name_in_the_order_of_training(read: Callable[..., pd.DataFrame]) -> None:
    names = ["00003", "00001", "00002"]
    tested = [{"Name": name, "test_MulticlassAccuracy": f"0.{name}"} for name in sorted(names)]
    runs = read([{"Name": name} for name in names], tested)
    assert runs["accuracy"].tolist() == [float(f"0.{name}") for name in names]


def test_what_is_not_exported_is_said(read: Callable[..., pd.DataFrame]) -> None:
    runs = read([{"architecture": "moco", "batch_size": "256", "optimizer": "SGD"}])
    assert runs.loc[0, "queue_size"] == 4096
    assert "queue_size 4096" in runs.loc[0, "reason"]
    assert "seed" in runs.loc[0, "reason"]
    assert "temperature" not in runs.loc[0, "reason"]  # it was exported


def test_what_is_left_out_is_said(
    read: Callable[..., pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    train = [{}, {"Name": "00002", "Status": "FAILED"}, {"Name": "00003"}]
    assert read(train, [{}, {"Name": "00004"}])["run"].tolist() == ["t_pets-00001"]
    said = capsys.readouterr().err
    assert "t_pets.csv: 1 runs did not finish" in said
    assert "2 finished runs are in one of the tables only" in said


@pytest.mark.parametrize(
    ("train", "tested", "message"),
    [
        ([{}], [{"dataset_name": "Cars"}], "00001 is another run: its dataset_name differs"),
        ([{"train_loss": "low"}], [{}], "low"),
        ([{}, {}], [{}], "not a one-to-one merge"),
    ],
)
def test_what_is_refused(
    read: Callable[..., pd.DataFrame], train: Changes, tested: Changes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(train, tested)


def test_no_tables(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no exported tables"):
        published_table(tmp_path)
    (tmp_path / "t-eval_pets.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"is no export of MLflow"):
        published_table(tmp_path)


@pytest.mark.parametrize("data", ["imagenet-100", "open-images-v7-50"])
@pytest.mark.parametrize(("head", "rows"), [("default", 9), ("rbfn", 216)])
def test_published_tables(data: str, head: str, rows: int) -> None:
    """Against the CSV as the csv module reads it."""
    train, tested = exported(data, head)
    runs = published(data, head)
    raw = list(csv.DictReader(train.read_text().splitlines()))
    accuracy = {
        row["Name"]: float(row["test_MulticlassAccuracy"])
        for row in csv.DictReader(tested.read_text().splitlines())
    }
    assert len(runs) == rows
    assert runs["accuracy"].tolist() == [accuracy[row["Name"]] for row in raw]
    assert runs["train_loss"].tolist() == [float(row["train_loss"].lstrip("'")) for row in raw]
    assert (runs["base_lr"] * runs["batch_size"] / 256).tolist() == pytest.approx(
        [float(row["learning_rate"]) for row in raw]
    )
    if head == "rbfn":
        column = "rbfn_projection_head_normalize"
        assert runs["normalize"].tolist() == [row[column] == "True" for row in raw]
        kernels = [int(row["rbfn_projection_head_num_kernels"]) for row in raw]
        assert runs["num_kernels"].tolist() == kernels
