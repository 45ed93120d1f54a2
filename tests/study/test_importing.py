"""Published tables become runs: traps of the export, what is refused, and that nothing repeats."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from radial.study.importing.importing import import_exports, read_export
from radial.study.table import read_runs
from radial.training.config import RunConfig
from radial.training.rundir import RunResult, read_config, read_result

TABLES = Path(__file__).parents[2].parent / "shared" / "data" / "paper-results"
DATASETS = ("imagenet-100", "open-images-v7-50")
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
    "epoch": "199", "train_loss": "0.6", "val_loss": "0.7", "eval_epochs": "200",
    "test_MulticlassAccuracy": "0.5", "test_MulticlassF1Score": "0.4",
    "test_MulticlassPrecision": "0.45", "test_MulticlassRecall": "0.5",
}  # fmt: skip


def pair(data: str, head: str) -> tuple[Path, Path]:
    folder = TABLES / data / head
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: run beside the published tables")
    stem = f"rbfn-ssl-projector-{head}"
    return folder / f"{stem}_{data}.csv", folder / f"{stem}-eval_{data}.csv"


@pytest.fixture
def write(tmp_path: Path):
    """Tables from changes to one good row each; a change to None takes the column away."""

    def make(train: list[dict[str, Any]], tested: list[dict[str, Any]] | None = None, name="t"):
        paths = []
        for stem, base, changes in ((name, TRAIN, train), (f"{name}-eval", EVAL, tested)):
            changes = train if changes is None else changes
            rows = [{**base, **change} for change in changes]
            gone = {key for row in rows for key, value in row.items() if value is None}
            path = tmp_path / f"{stem}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                names = [
                    key for key in dict.fromkeys(k for r in rows for k in r) if key not in gone
                ]
                writer = csv.DictWriter(file, names, extrasaction="ignore", restval="")
                writer.writeheader()
                writer.writerows(rows)
            paths.append(path)
        return paths[0], paths[1]

    return make


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_traps_of_the_export(write) -> None:
    changes = [
        {},
        {"Run ID": "a2", "Name": "00002", "architecture": "byol", "train_loss": "'-0.99",
         "temperature": "", "rbfn_projection_head_normalize": "True"},
        {"Run ID": "a3", "Name": "00003", "projection_head_type": "default"},
    ]  # fmt: skip
    runs = read_export(*write(changes, [change | {"Run ID": None} for change in changes]))
    first, second, third = (runs.loc[i] for i in range(3))
    assert (first.base_lr, first.weight_decay, first.epochs, first.epoch) == (0.3, 1e-6, 100, 100)
    assert (first["head"], first.radial_function, first.num_kernels) == ("rbfn-paper", "tps", 256)
    assert (first.distance, first.normalize, second.normalize) == ("euclidean", False, True)
    assert math.isnan(first.momentum)  # 0.9 is the optimiser's
    assert second.momentum == 0.996
    assert second.train_loss == -0.99
    assert (first.weights, first.optimizer, first.seconds) == ("IMAGENET1K_V2", "lars", 9000.0)
    assert first.constant_loss == pytest.approx(math.log(4095))
    assert [first[name] for name in ("accuracy", "precision", "recall", "f1")] == [
        0.5, 0.45, 0.5, 0.4,
    ]  # fmt: skip
    assert third["head"] == "default"
    assert third.published_head
    assert third.radial_function is None or pd.isna(third.radial_function)
    assert runs["index"].tolist() == [0, 1, 2]
    assert runs["source"].unique().tolist() == ["t.csv"]


def test_joined_by_name_in_the_order_of_training(write) -> None:
    names = ["00003", "00001", "00002"]
    train = [{"Name": name, "Run ID": name} for name in names]
    tested = [{"Name": name, "test_MulticlassAccuracy": f"0.{name}"} for name in sorted(names)]
    runs = read_export(*write(train, tested))
    assert runs["accuracy"].tolist() == [float(f"0.{name}") for name in names]


def test_what_is_not_exported_is_said(write, tmp_path: Path) -> None:
    tables = write([{"architecture": "moco", "batch_size": "256", "optimizer": "SGD"}])
    runs = read_export(*tables)
    assert runs.loc[0, "queue_size"] == 4096
    assert runs.loc[0, "constant_loss"] == pytest.approx(math.log(4097))
    assert "queue_size 4096" in runs.loc[0, "reason"]
    assert "temperature" not in runs.loc[0, "reason"]  # it was exported
    import_exports([tables], tmp_path / "study", tell=lambda text: None)
    (found,) = (tmp_path / "study" / "runs").glob("*/eval.json")
    warnings = json.loads(found.read_text())["warnings"]
    assert any("queue_size 4096" in text for text in warnings)
    assert any("seed" in text for text in warnings)


def test_generic_exports(write) -> None:
    """Without any rbfn column, and with the names that mlflow.search_runs gives."""
    plain = {key: None for key in TRAIN if key.startswith(("rbfn_", "projection_head_"))}
    runs = read_export(*write([plain | {"seed": "7", "weights": ""}]))
    assert (runs.loc[0, "head"], runs.loc[0, "seed"]) == ("default", 7)
    assert runs.loc[0, "weights"] is None
    assert "hidden_dim 2048" in runs.loc[0, "reason"]

    def prefixed(row: dict[str, Any]) -> dict[str, Any]:
        names = {"Name": "tags.mlflow.runName", "Run ID": "run_id", "Status": "status"}
        metrics = ("loss", "Accuracy", "Score", "Precision", "Recall")
        found = {}
        for key, value in (TRAIN | row).items():
            kind = "metrics." if key.endswith(metrics) else "params."
            found |= {names.get(key, kind + key): value, key: None}
        return found

    tables = write([prefixed({})], [prefixed(EVAL)])
    same = read_export(*write([{}], name="u"))
    assert (
        read_export(*tables)
        .drop(columns=["run", "source"])
        .equals(same.drop(columns=["run", "source"]))
    )


@pytest.mark.parametrize(
    ("train", "tested", "message"),
    [
        ({"architecture": None, "train_loss": None}, {}, r"t\.csv has no column architecture, t"),
        ({"rbfn_projection_head_normalize": None}, {}, "no column rbfn_projection_head_normalize"),
        ({}, {"test_MulticlassAccuracy": None}, r"t-eval\.csv has no column test_Multiclass"),
        ({"train_loss": "low"}, {}, r"t\.csv, run 00001: train_loss is 'low', which is no number"),
        ({"batch_size": "2.5"}, {}, "batch_size is 2.5, which is no whole number"),
        ({"architecture": "dino"}, {"architecture": "dino"}, "unknown architecture 'dino'; known"),
        ({"projection_head_type": "kan"}, {"projection_head_type": "kan"}, "'kan'; known: 'defaul"),
        ({"optimizer": "Adam"}, {}, "run 00001: unknown optimizer 'adam'; known"),
        ({}, {"dataset_name": "Cars"}, "another run of that name: dataset_name 'Pets' and 'Cars'"),
        ({}, {"test_MulticlassAccuracy": "92.1"}, "must be between 0 and 1, not 92.1"),
        ({}, {"test_MulticlassAccuracy": ""}, "must be between 0 and 1, not None"),
        ({"Name": ""}, {}, "row 1 has no Name"),
        ({"dataset_name": ""}, {"dataset_name": ""}, "dataset_name is empty"),
    ],
)
def test_refused(write, train, tested, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_export(*write([train], [tested]))


def test_names_must_be_unique_among_finished_runs(write) -> None:
    failed = {"Run ID": "a0", "Status": "FAILED"}
    said: list[str] = []
    runs = read_export(*write([failed, {}], [{}]), tell=said.append)
    assert runs["index"].tolist() == [1]  # rows keep their place in the table
    assert said == ["t.csv: skipped, not finished: 00001 (FAILED)"]
    with pytest.raises(ValueError, match="more than one finished run of the name 00001"):
        read_export(*write([{"Run ID": "a0"}, {}], [{}]))


def test_rows_without_a_partner_are_told(write) -> None:
    tables = write([{}, {"Name": "00002"}], [{}, {"Name": "00003"}, {"Name": "00004"}])
    said: list[str] = []
    assert len(read_export(*tables, tell=said.append)) == 1
    assert said == [
        "t.csv: skipped, not in the other table: 00002",
        "t-eval.csv: skipped, not in the other table: 00003, 00004",
    ]
    with pytest.warns(UserWarning, match="not in the other table"):
        read_export(*tables)
    with pytest.raises(ValueError, match="no finished run in common"):
        read_export(*write([{}], [{"Name": "x"}]), tell=said.append)


def test_files_that_are_no_tables(write, tmp_path: Path) -> None:
    train, tested = write([{}])
    for content, message in ((b"", "no rows"), (b"\xff\xfe\x00", "cannot be read as a CSV")):
        train.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_export(train, tested)
    train.write_text("Name,x\na,1,2\n")
    with pytest.raises(ValueError, match="row 1 has more cells than the header"):
        read_export(train, tested)
    with pytest.raises(ValueError, match=r"none\.csv cannot be read"):
        read_export(tmp_path / "none.csv", tested)


def test_store_format(write, tmp_path: Path) -> None:
    """The result has all keys of a run's own, and the table of runs is the same as the export."""
    tables = write([{}, {"Name": "00002", "Run ID": "a2", "train_loss": "NaN"}])
    assert import_exports([tables], tmp_path / "study", tell=lambda text: None) == 2
    exported = read_export(*tables)
    for run in exported["run"]:
        directory = tmp_path / "study" / "runs" / run
        assert isinstance(read_config(directory), RunConfig)
        names = [field.name for field in dataclasses.fields(RunResult)]
        assert list(json.loads((directory / "result.json").read_text())) == names
        assert read_result(directory).verdict == "imported"
    stored = read_runs(tmp_path / "study")
    assert set(exported) <= set(stored)
    assert math.isnan(stored["train_loss"][1])
    for name in exported:
        same = stored[name].eq(exported[name]) | (stored[name].isna() & exported[name].isna())
        assert same.all(), name


def test_importing_again_changes_nothing(write, tmp_path: Path) -> None:
    out, said = tmp_path / "study", []
    tables = write([{}, {"Name": "00002", "Run ID": "a2"}])
    assert import_exports([tables, tables], out, tell=said.append) == 2
    before = contents(out)
    assert import_exports([tables], out, tell=said.append) == 0
    assert contents(out) == before
    assert said == [
        f"2 runs imported into {out}, 0 were there already",
        f"0 runs imported into {out}, 2 were there already",
    ]


def test_an_import_that_was_interrupted_is_completed(write, tmp_path: Path) -> None:
    out = tmp_path / "study"
    tables = write([{}, {"Name": "00002", "Run ID": "a2"}])
    import_exports([tables], out, tell=lambda text: None)
    before = contents(out)
    one, two = sorted((out / "runs").iterdir())
    (one / "result.json").unlink()
    (one / "eval.json").unlink()
    (two / "result.json").write_text('{"verdict": ')
    assert import_exports([tables], out, tell=lambda text: None) == 2
    after = contents(out)
    aside = [name for name in after if "unreadable" in name]
    assert [after.pop(name) for name in aside] == [b'{"verdict": ']  # never deleted
    assert after == before


def test_changed_rows_and_tables_of_one_name_are_errors(write, tmp_path: Path) -> None:
    out = tmp_path / "study"
    import_exports([write([{}])], out, tell=lambda text: None)
    before = contents(out)
    tables = write([{"val_loss": "1.5"}])
    with pytest.raises(
        ValueError, match=r"run 00001: imported before, as .*, with another content"
    ):
        import_exports([tables], out, tell=lambda text: None)
    with pytest.raises(ValueError, match=r"t\.csv: another table of that name"):
        import_exports([write([{"Run ID": "b"}])], out, tell=lambda text: None)
    assert contents(out) == before


def test_nothing_is_written_where_one_table_is_bad(write, tmp_path: Path) -> None:
    good, bad = write([{}], name="good"), write([{"train_loss": "low"}], name="bad")
    with pytest.raises(ValueError, match=r"bad\.csv, run 00001"):
        import_exports([good, bad], tmp_path / "study", tell=lambda text: None)
    assert not (tmp_path / "study").exists()


def test_places_that_are_no_studies(write, tmp_path: Path) -> None:
    tables = write([{}])
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        import_exports([tables], tmp_path / "file", tell=lambda text: None)
    with pytest.raises(ValueError, match="not empty and not a study"):
        import_exports([tables], tmp_path, tell=lambda text: None)
    study = tmp_path / "newer"
    study.mkdir()
    (study / "study.yaml").write_text("version: 99\nname: x\n")
    with pytest.raises(ValueError, match="newer radial"):
        import_exports([tables], study, tell=lambda text: None)


def test_no_torch() -> None:
    code = (
        "import sys, radial.study.importing, radial.study.audit; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("data", DATASETS)
def test_published_tables(data: str) -> None:
    """Against the CSV as the csv module reads it."""
    name = {"imagenet-100": "ImageNet100", "open-images-v7-50": "OpenImagesV7-50"}[data]
    for head, rows in (("default", 9), ("rbfn", 216)):
        train, tested = pair(data, head)
        runs = read_export(train, tested)
        raw = list(csv.DictReader(train.read_text().splitlines()))
        accuracy = {
            row["Name"]: float(row["test_MulticlassAccuracy"])
            for row in csv.DictReader(tested.read_text().splitlines())
        }
        assert len(runs) == rows
        assert runs["index"].tolist() == list(range(rows))
        assert set(runs["data"]) == {name}
        assert runs["accuracy"].tolist() == [accuracy[row["Name"]] for row in raw]
        losses = [float(row["train_loss"].lstrip("'")) for row in raw]
        assert runs["train_loss"].tolist() == losses
        assert (runs["base_lr"] * runs["batch_size"] / 256).tolist() == pytest.approx(
            [float(row["learning_rate"]) for row in raw]
        )
        if head == "rbfn":
            column = "rbfn_projection_head_normalize"
            assert runs["normalize"].tolist() == [row[column] == "True" for row in raw]
            kernels = [int(row["rbfn_projection_head_num_kernels"]) for row in raw]
            assert runs["num_kernels"].tolist() == kernels


def test_published_tables_in_one_study(tmp_path: Path) -> None:
    pairs = [pair("open-images-v7-50", head) for head in ("default", "rbfn")]
    assert import_exports(pairs, tmp_path / "study", tell=lambda text: None) == 225
    stored = read_runs(tmp_path / "study")
    for train, tested in pairs:
        exported, own = read_export(train, tested), stored[stored["source"] == train.name]
        assert own["run"].tolist() == exported["run"].tolist()  # the order of the CSV
        assert own["accuracy"].tolist() == exported["accuracy"].tolist()
