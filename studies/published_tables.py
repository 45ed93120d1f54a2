"""The published result tables, exported from MLflow, as one table of results.

    python studies/published_tables.py FOLDER published.parquet
    radial study audit published.parquet

FOLDER holds pairs of CSV files, at any depth: X_DATA.csv of training beside X-eval_DATA.csv of the
evaluation. The columns that come out are those of radial.study.results. What the exports get wrong,
or leave out:

- ``learning_rate``, ``weight_decay`` and ``epochs`` of the evaluation are the probe's: a run's
  settings are read from the training table only.
- ``normalize`` is that of the images; the head's is ``rbfn_projection_head_normalize``.
- ``momentum`` is the optimiser's, not the momentum encoder's.
- Spreadsheets guard negative numbers by an apostrophe: '-0.99.
- Names such as 00001 recur in every table: settings that both of a pair hold must agree.
- What is not exported (MoCo's queue, SwAV's prototypes, the momentum encoder) is taken from the
  published settings, and the reason of the run says so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from radial.files import atomic
from radial.study.results import ONLY_RBFN
from radial.training.config import PAPER

RBF = "rbfn_projection_head_"
TEXTS = {  # setting: column of the training table
    "data": "dataset_name", "method": "architecture", "head": "projection_head_type",
    "backbone": "backbone", "weights": "weights", "optimizer": "optimizer",
    "radial_function": f"{RBF}radial_function", "distance": f"{RBF}norm_function",
    "normalize": f"{RBF}normalize",
}  # fmt: skip
NUMBERS = {
    "image_size": "img_size", "epochs": "epochs", "batch_size": "batch_size",
    "base_lr": "base_learning_rate", "weight_decay": "weight_decay", "temperature": "temperature",
    "hidden_dim": "projection_head_hidden_dim", "output_dim": "projection_head_output_dim",
    "num_layers": "projection_head_num_layers", "num_kernels": f"{RBF}num_kernels",
    "epoch": "epoch", "train_loss": "train_loss", "val_loss": "val_loss",
}  # fmt: skip
LABELS = {
    "accuracy": "test_MulticlassAccuracy", "precision": "test_MulticlassPrecision",
    "recall": "test_MulticlassRecall", "f1": "test_MulticlassF1Score",
}  # fmt: skip
WORDS = {  # as radial spells it
    "head": {"rbfn": "rbfn-paper"},
    "distance": {"euclidian": "euclidean"},
    "normalize": {"True": True, "False": False},
    "weights": {"DEFAULT": "IMAGENET1K_V2"},  # torchvision's best of ResNet-50
    "optimizer": {"LARS": "lars", "SGD": "sgd"},
}
PROBE = " of the probe"  # what the evaluation's columns of a known name are called
# What must agree where rows of two tables are taken for one run.
SAME = ("architecture", "dataset_name", "backbone", "projection_head_type",
        "projection_head_num_layers", f"{RBF}num_kernels", f"{RBF}radial_function",
        f"{RBF}normalize")  # fmt: skip
NOTES = (
    "accuracy is the mean over the classes: it equals the macro recall",
    "weights DEFAULT read as torchvision's: IMAGENET1K_V2",
    "not in the export: the seed; 0 stands for it",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with the exported tables")
    parser.add_argument("out", type=Path, help="the table of results: a .parquet or .csv")
    options = parser.parse_args()
    try:
        table = published_table(options.folder)
    except ValueError as error:
        parser.error(str(error))
    with atomic(options.out, "wb") as file:
        if options.out.suffix == ".csv":
            table.to_csv(file, index=False)
        else:
            table.to_parquet(file, index=False)
    print(f"{len(table)} runs: {options.out}")
    return 0


def published_table(folder: Path) -> pd.DataFrame:
    """The runs of every pair of tables below a folder, in the order of the training tables."""
    tested = sorted(folder.rglob("*-eval_*.csv"))
    if not tested:
        raise ValueError(f"{folder} has no exported tables: X_DATA.csv beside X-eval_DATA.csv")
    pairs = [(path.with_name(path.name.replace("-eval_", "_")), path) for path in tested]
    return pd.concat([read_pair(*pair) for pair in pairs], ignore_index=True)


def read_pair(train_csv: Path, eval_csv: Path) -> pd.DataFrame:
    """The finished runs that a training and an evaluation table share."""
    trained, tested = finished(train_csv), finished(eval_csv)
    both = trained.merge(tested, on="Name", suffixes=("", PROBE), validate="one_to_one")
    if alone := set(trained["Name"]) ^ set(tested["Name"]):
        say(f"{train_csv.name}: {len(alone)} finished runs are in one of the tables only")
    for name in SAME:
        if name in both and f"{name}{PROBE}" in both:
            one, other = both[name].fillna(""), both[f"{name}{PROBE}"].fillna("")
            if (one != other).any():
                run = both["Name"][one != other].iloc[0]
                raise ValueError(f"{eval_csv.name}: {run} is another run: its {name} differs")
    texts = {name: both.get(column) for name, column in TEXTS.items()}
    columns = NUMBERS | LABELS
    numbers = {n: pd.to_numeric(both[c]) for n, c in columns.items() if c in both}
    table = pd.DataFrame(
        {
            "run": train_csv.stem + "-" + both["Name"],
            "source": train_csv.name,
            "index": range(len(both)),
            **{name: values for name, values in texts.items() if values is not None},
            **numbers,
            "epoch": (numbers["epoch"] + 1).clip(upper=numbers["epochs"]),  # counted from 0
            "seconds": pd.to_timedelta(both["Duration"]).dt.total_seconds(),
            "seed": 0,
            "verdict": "imported",
            "reason": "; ".join(NOTES),
        }
    )
    for name, words in WORDS.items():
        if name in table:
            table[name] = table[name].map(lambda word, words=words: words.get(word, word))
    groups = [with_published(group) for _, group in table.groupby("method", sort=False)]
    table = pd.concat(groups).sort_index()
    for name in table.columns.intersection(list(ONLY_RBFN)):
        table[name] = table[name].where(table["head"] == "rbfn-paper")
    return table


def finished(path: Path) -> pd.DataFrame:
    """The rows of an export as text, without those of runs that failed or were stopped."""
    try:
        rows = pd.read_csv(path, dtype=str)
        rows = rows.apply(lambda cells: cells.str.replace(r"^'(?=[-+])", "", regex=True))
        done = rows[rows["Status"] == "FINISHED"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is no export of MLflow: {error}") from error
    if left := len(rows) - len(done):
        say(f"{path.name}: {left} runs did not finish and are left out")
    return done


def with_published(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs of one method with the published settings where the export has none."""
    published = PAPER[runs["method"].iloc[0]]
    assumed = {
        name: value
        for name, value in published.items()
        if name != "published_head" and (name not in runs or runs[name].isna().any())
    }
    listed = ", ".join(f"{name} {value}" for name, value in assumed.items())
    said = f"; not in the export, taken from the published settings: {listed}" if listed else ""
    own_head = bool(published.get("published_head")) & (runs["head"] == "default")
    return runs.assign(**assumed, published_head=own_head, reason=runs["reason"] + said)


def say(line: str) -> None:
    print(f"published_tables: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
