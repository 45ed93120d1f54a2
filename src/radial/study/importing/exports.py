"""Reading published tables: MLflow exports, a training and an evaluation CSV joined on ``Name``.

What such tables get wrong, or leave out, is handled here and said in the notes of each run:

- ``learning_rate``, ``weight_decay`` and ``epochs`` of the evaluation table are the probe's; the
  settings of a run come from the training table only.
- ``normalize`` is that of the images; the head's is ``rbfn_projection_head_normalize``.
- ``momentum`` is the optimiser's, not the momentum encoder's.
- Spreadsheets guard negative numbers by an apostrophe: ``'-0.99``.
- Names such as 00001 recur in every table: settings that both tables hold must agree.
- What is not exported (MoCo's queue, SwAV's prototypes and temperature, the momentum encoder) is
  taken from the published settings, :data:`radial.training.config.PAPER`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from radial.checks import check_choice
from radial.study.importing.cells import (
    Row,
    check_columns,
    finished,
    read_table,
    real,
    seconds,
    some,
    whole,
)
from radial.study.store import Tell
from radial.training.config import DEFAULTS, PAPER, RunConfig
from radial.training.rundir import CONFIG, EVALUATION, RESULT
from radial.verdicts import constant_loss

HEADS = {"default": "default", "rbfn": "rbfn-paper", "rbfn-paper": "rbfn-paper", "mlp": "mlp",
         "linear": "linear"}  # fmt: skip
METHODS = {"mocov2": "moco", "barlowtwins": "barlow_twins"}
# torchvision's best weights of a backbone, which it calls DEFAULT
DEFAULT_WEIGHTS = {"resnet18": "IMAGENET1K_V1", "resnet34": "IMAGENET1K_V1",
                   "resnet50": "IMAGENET1K_V2"}  # fmt: skip
RBF = "rbfn_projection_head_"
# setting -> columns of the training table that hold it, the first one there counts
WHOLE = {
    "image_size": ("img_size", "image_size"),
    "epochs": ("epochs",),
    "batch_size": ("batch_size",),
    "hidden_dim": ("projection_head_hidden_dim",),
    "output_dim": ("projection_head_output_dim",),
    "num_layers": ("projection_head_num_layers",),
    "queue_size": ("queue_size", "memory_bank_size"),
    "prototypes": ("prototypes", "num_prototypes", "n_prototypes"),
    "seed": ("seed",),
    "workers": ("num_workers",),
    "devices": ("devices",),
}
REAL = {
    "base_lr": ("base_learning_rate", "base_lr"),
    "weight_decay": ("weight_decay",),
    "temperature": ("temperature",),
}
SCORES = {
    "accuracy": "test_MulticlassAccuracy",
    "precision": "test_MulticlassPrecision",
    "recall": "test_MulticlassRecall",
    "f1": "test_MulticlassF1Score",
}
PROBE = ("eval_epochs", "eval_batch_size", "eval_learning_rate", "eval_weight_decay",
         "eval_train_perc", "eval_val_perc", "eval_test_perc")  # fmt: skip
NEEDED = ("Name", "architecture", "dataset_name", "batch_size", "train_loss")
NEEDED_RBF = (f"{RBF}num_kernels", f"{RBF}radial_function", f"{RBF}normalize")
NEEDED_EVAL = ("Name", SCORES["accuracy"])
# what must agree where a training and an evaluation row are taken for the same run
SAME = ("architecture", "dataset_name", "backbone", "seed", "projection_head_type",
        "projection_head_num_layers", *NEEDED_RBF)  # fmt: skip
PUBLISHED = "published"  # the name of the probe
Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One published run: what its directory will hold."""

    run: str
    config: RunConfig
    result: dict[str, Any]
    evaluation: dict[str, Any]
    source: dict[str, Any]

    def files(self) -> dict[str, str]:
        """Name -> content; the result last, since its presence means complete."""
        return {
            "source.json": json.dumps(self.source, indent=2),
            CONFIG: yaml.dump(self.config.to_dict(), Dumper=Dumper, sort_keys=False),
            EVALUATION: json.dumps(self.evaluation, indent=2, allow_nan=False),
            RESULT: json.dumps(self.result, indent=2, allow_nan=False),
        }


def read_pair(train_csv: Path, eval_csv: Path, tell: Tell | None = None) -> list[Imported]:
    """The finished runs that both tables hold, in the order of the training table."""
    tell = tell or (lambda message: warnings.warn(message, stacklevel=3))
    training, evaluation = read_table(train_csv), read_table(eval_csv)
    is_rbfn = any(row.get("projection_head_type", "").startswith("rbfn") for _, row in training)
    check_columns(train_csv, training, NEEDED + (NEEDED_RBF if is_rbfn else ()))
    check_columns(eval_csv, evaluation, NEEDED_EVAL)
    trained = finished(train_csv, training, tell)
    evaluated = finished(eval_csv, evaluation, tell)
    for path, names in (
        (train_csv, [name for name in trained if name not in evaluated]),
        (eval_csv, [name for name in evaluated if name not in trained]),
    ):
        if names:
            tell(f"{path.name}: skipped, not in the other table: {some(names)}")
    shared = {name: place for name, place in trained.items() if name in evaluated}
    if not shared:
        raise ValueError(f"{train_csv.name} and {eval_csv.name} have no finished run in common")
    runs = []
    for name, (index, row) in shared.items():
        try:
            runs.append(_imported(train_csv.name, eval_csv.name, index, row, evaluated[name][1]))
        except ValueError as error:
            raise ValueError(f"{train_csv.name}, run {name}: {error}") from error
    return runs


def _imported(source: str, eval_source: str, index: int, row: Row, tested: Row) -> Imported:
    both = [key for key in SAME if key in row and key in tested]
    differ = [key for key in both if row[key] != tested[key]]
    if differ:
        values = ", ".join(f"{key} {row[key]!r} and {tested[key]!r}" for key in differ)
        raise ValueError(f"{eval_source} has another run of that name: {values}")
    config, notes = _config(row)
    scores = {name: real(tested, column) for name, column in SCORES.items()}
    for name, value in scores.items():
        if (value is None and name == "accuracy") or not 0.0 <= (value or 0.0) <= 1.0:
            raise ValueError(f"{SCORES[name]} must be between 0 and 1, not {value!r}")
    if scores["accuracy"] == scores["recall"]:
        notes.append("accuracy is the mean over the classes: it equals the macro recall")
    last = whole(row, ("epoch",))  # counted from 0
    epochs = config.epochs if last is None else min(last + 1, config.epochs)
    identity = row.get("Run ID") or f"{row['Name']} {index}"
    run = hashlib.sha256(f"{source}\0{identity}".encode()).hexdigest()[:12]
    content = json.dumps([sorted(row.items()), sorted(tested.items())], ensure_ascii=False)
    sizes = ("batch_size", "queue_size", "prototypes", "output_dim")
    constant = constant_loss(config.method, **{name: getattr(config, name) for name in sizes})
    result = {
        "directory": f"runs/{run}",
        "verdict": "imported",
        "reason": "; ".join(notes),
        "events": [],
        "stopped": epochs < config.epochs,
        "method": config.method,
        "head": config.head,
        "data": config.data,
        "backbone": config.backbone,
        "stem": None,
        "seed": config.seed,
        "epochs": epochs,
        "steps": None,
        "train_loss": real(row, "train_loss"),
        "val_loss": real(row, "val_loss"),
        "constant_loss": None if math.isnan(constant) else constant,
        "spread": None,
        "knn": None,
        "images": None,
        "split": config.split,
        "skipped": [],
        "head_health": "unknown",
        "batch_norm": None,
        "seconds": seconds(row.get("Duration", "")),
        "images_per_second": None,
    }
    evaluation = {
        "target": f"{source}: {row['Name']}",
        "kind": "imported",
        "checkpoint": None,
        "directory": None,
        "backbone": config.backbone,
        "method": config.method,
        "head": config.head,
        "data": {"data": config.data, "split": config.split, "image_size": config.image_size},
        "probes": {
            PUBLISHED: scores
            | {"settings": {key: real(tested, key) for key in PROBE if tested.get(key)}}
        },
        "warnings": notes,
        "versions": {},
    }
    origin = {
        "source": source,
        "eval_source": eval_source,
        "index": index,
        "name": row["Name"],
        "run_id": row.get("Run ID") or None,
        "content": hashlib.sha256(content.encode()).hexdigest(),
    }
    return Imported(run=run, config=config, result=result, evaluation=evaluation, source=origin)


def _config(row: Row) -> tuple[RunConfig, list[str]]:
    """The settings of a training row, and what of them was not in it."""
    method = re.sub(r"[ -]", "_", row["architecture"].lower())
    method = METHODS.get(method.replace("_", ""), method)
    check_choice("architecture", method, DEFAULTS)
    kind = row.get("projection_head_type") or "default"
    check_choice("projection_head_type", kind, HEADS)
    published, head = PAPER[method], HEADS[kind]
    settings: dict[str, Any] = {"method": method, "head": head, "data": row["dataset_name"]}
    settings |= {name: whole(row, columns) for name, columns in WHOLE.items()}
    settings |= {name: real(row, *columns) for name, columns in REAL.items()}
    settings["optimizer"] = row.get("optimizer", "").lower() or None
    settings["backbone"] = row.get("backbone") or None
    if settings["base_lr"] is None and settings["batch_size"] is not None:
        lr = real(row, "learning_rate")
        settings["base_lr"] = None if lr is None else lr * 256 / settings["batch_size"]
    for name in ("temperature", "queue_size", "prototypes"):
        if name not in published:
            settings.pop(name)  # the method has none
    if head == "linear":
        settings.pop("num_layers")
    if not settings["data"]:
        raise ValueError("dataset_name is empty")
    notes = []
    assumed = {
        name: value
        for name, value in published.items()
        if settings.get(name) is None
        and not (name == "weights" and "weights" in row)
        and not (name == "published_head" and head != "default")
    }
    if assumed:
        listed = ", ".join(f"{name} {value}" for name, value in assumed.items())
        notes.append(f"not in the export, taken from the published settings: {listed}")
    if settings["seed"] is None:
        notes.append("not in the export: the seed; 0 stands for it")
    settings = {name: value for name, value in settings.items() if value is not None} | assumed
    if "weights" in row:
        settings["weights"] = row["weights"] if row["weights"] not in ("", "None") else None
    if settings["weights"] == "DEFAULT":
        settings["weights"] = DEFAULT_WEIGHTS.get(settings["backbone"], "DEFAULT")
        notes.append(f"weights DEFAULT read as torchvision's: {settings['weights']}")
    if head == "rbfn-paper":
        settings |= _kernels(row)
    return RunConfig(**settings), notes


def _kernels(row: Row) -> dict[str, Any]:
    normalize = row[f"{RBF}normalize"].lower()
    check_choice(f"{RBF}normalize", normalize, ("true", "false"))
    distance = row.get(f"{RBF}norm_function") or "euclidean"
    kernels = whole(row, (f"{RBF}num_kernels",))
    if kernels is None:
        raise ValueError(f"{RBF}num_kernels is empty")
    return {
        "num_kernels": kernels,
        "radial_function": row[f"{RBF}radial_function"],
        "distance": "euclidean" if distance == "euclidian" else distance,
        "normalize": normalize == "true",
    }
