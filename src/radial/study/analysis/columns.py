"""What the columns of a frame of runs are: settings, scores and their directions, clusters.

A frame of runs has one row a run (or one a checkpoint, with its ``epoch``). Columns named like the
fields of :class:`radial.training.config.RunConfig` are settings; ``name@layer`` are scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from radial.checks import check_choice
from radial.metrics.registry import SCORES, ScoreInfo, quality
from radial.training.config import RunConfig

Array = NDArray[np.float64]

METRICS = ("f1", "accuracy", "precision", "recall")
METHODS = ("moco", "simclr", "byol", "swav", "simsiam")  # the paper's order
DIRECTIONS = ("higher", "lower", "near 1", "none")
# Baselines that every score is held against: column -> which way is better.
BASELINES: Mapping[str, str] = {
    "train_loss": "lower",
    "knn_1pct": "higher",
    "logistic_1pct": "higher",
    "logistic_10pct": "higher",
    "steps": "higher",
}

# Where and how a run was computed, not what it is. Two names mean something else in a frame of
# runs: precision and knn are results there.
HOUSEKEEPING = frozenset(
    ("out", "data_root", "max_bad_images", "workers", "accelerator", "devices", "num_nodes",
     "threads", "save_every", "knn", "precision", "monitor", "monitor_every", "monitor_unit",
     "keep", "loggers", "on_collapse")
)  # fmt: skip
# Settings that belong to a head: two heads are compared with all other settings equal.
HEAD_SETTINGS = frozenset(
    ("head", "hidden_dim", "output_dim", "num_layers", "num_kernels", "radial_function",
     "distance", "normalize", "residual", "head_batch_norm", "published_head", "calibrate",
     "kernel_lr_scale", "shape_lr_scale")
)  # fmt: skip
# Settings that may be tuned for each head: where each head of a method has one value of its own,
# that is part of what is compared.
TUNED = ("base_lr", "weight_decay", "warmup_epochs")
SETTINGS = tuple(f.name for f in fields(RunConfig) if f.name not in HOUSEKEEPING)


def frame(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> pd.DataFrame:
    """Rows as a frame with these columns, also where there are none."""
    return pd.DataFrame(list(rows), columns=list(columns))


def by_data(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The datasets in the order in which they come, rows counted from 0; none of no runs."""
    if len(runs):
        for data, group in runs.groupby("data", sort=False):
            yield str(data), group.reset_index(drop=True)


def numbers(runs: pd.DataFrame, column: str) -> Array:
    """A column as float64; NaN where it is absent, infinite or no number."""
    if column not in runs:
        return np.full(len(runs), np.nan)
    values = pd.to_numeric(runs[column], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def score_columns(runs: pd.DataFrame) -> list[str]:
    return [str(column) for column in runs.columns if "@" in str(column)]


def method_order(names: Iterable[str]) -> list[str]:
    """The paper's methods in the paper's order, then the others by name."""
    known = set(names)
    return [name for name in METHODS if name in known] + sorted(known - set(METHODS))


def labelled(runs: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """The rows with a number in that column, counted anew from 0."""
    return runs[np.isfinite(numbers(runs, column))].reset_index(drop=True)


def oriented(values: Array, better: str) -> Array:
    """Values such that more is better: v, −v, or −|v − 1|."""
    check_choice("direction", better, DIRECTIONS[:3])
    return np.asarray(quality(better, values), dtype=np.float64)


def judged(runs: pd.DataFrame, better: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(column, direction, "score" or "baseline") of what ranks the runs of a frame.

    Scores are those with a declared direction other than none; baselines are those of
    :data:`BASELINES` that the frame has, ``steps`` only where they differ within a method.
    """
    for value in better.values():
        check_choice("direction", value, DIRECTIONS)
    found = [(name, way, "score") for name, way in better.items() if way != "none"]
    found += [(name, way, "baseline") for name, way in BASELINES.items() if name not in better]
    found = [entry for entry in found if np.isfinite(numbers(runs, entry[0])).any()]
    if ("steps", "higher", "baseline") in found:
        steps = pd.Series(numbers(runs, "steps"))
        groups = steps.groupby([runs["data"].to_numpy(), runs["method"].to_numpy()])
        if not (groups.nunique() > 1).any():
            found.remove(("steps", "higher", "baseline"))
    return found


def of_different_views(runs: pd.DataFrame, scores: Iterable[str]) -> list[str]:
    """The scores of views, where the runs of a dataset had different galleries of views.

    Their values depend on the gallery, so that they do not compare. Of as many views of as many
    images, two do: LiDAR where each run had its own recipe, as its paper has it, and scores that
    have recipes of their own.
    """
    if "gallery" not in runs:
        return []
    known = runs.dropna(subset="gallery").groupby("data")["gallery"]
    mixed = [set(found) for _, found in known if found.nunique() > 1]
    kinds = [{gallery.partition(":")[0] for gallery in found} for found in mixed]
    as_many = all(len({kind.partition(",")[0] for kind in found}) == 1 for found in kinds)
    own = as_many and all(kind.endswith(", own") for found in kinds for kind in found)

    def compares(info: ScoreInfo) -> bool:
        alike = (own and info.name == "lidar") or (as_many and info.needs == "recipes")
        return alike or not info.from_views

    names = {column: column.partition("@")[0] for column in scores if mixed}
    return [c for c, name in names.items() if name in SCORES and not compares(SCORES[name])]


def with_clid(runs: pd.DataFrame, better: Mapping[str, str]) -> tuple[pd.DataFrame, dict[str, str]]:
    """The frame with a column ``clid@LAYER`` where it has both parts, and the directions with it.

        CLID = z(cluster_learnability) + z(two_nn),  z(x) = (x − mean)/deviation

    over the pool, the runs of a dataset: the value of a run depends on the others. Higher is better
    in both parts, which is against the direction that two_nn has by itself. Lu et al., 2022,
    https://arxiv.org/abs/2206.01251; that the parts are standardised and added is from an
    independent implementation, the paper's text was not at hand.

    Args:
        runs: one row a run.
        better: score -> direction.

    Returns:
        A new frame and new directions; a run without one of the parts has NaN, and so has a pool
        in which a part does not vary.
    """
    added = {}
    for layer in ("backbone", "projector"):
        parts = [f"{name}@{layer}" for name in ("cluster_learnability", "two_nn")]
        if not set(parts) <= set(runs.columns):
            continue
        values = pd.DataFrame({name: numbers(runs, name) for name in parts}, index=runs.index)
        pools = values.dropna().groupby(runs["data"])
        deviation = pools.transform("std", ddof=0).replace(0.0, np.nan)
        standard = (values.dropna() - pools.transform("mean")) / deviation
        added[f"clid@{layer}"] = standard.sum(axis=1, skipna=False).reindex(runs.index)
    return runs.assign(**added), {**better, **dict.fromkeys(added, "higher")}


def codes(runs: pd.DataFrame, columns: Iterable[str]) -> NDArray[np.int64]:
    """A number for each distinct combination of values; missing values are equal to each other."""
    present = [column for column in columns if column in runs]
    keys = [
        tuple("" if missing else str(value) for value, missing in zip(row, absent))
        for row, absent in zip(
            runs[present].itertuples(index=False, name=None), runs[present].isna().to_numpy()
        )
    ]
    return np.asarray(pd.factorize(pd.Series(keys, dtype=object))[0], dtype=np.int64)


def configurations(runs: pd.DataFrame) -> NDArray[np.int64]:
    """Which configuration each row is: all settings but the seed.

    Rows of one configuration differ by seed or checkpoint only. Without a column ``seed`` it
    cannot be known what differs, and each row is its own.
    """
    if "seed" not in runs:
        return np.arange(len(runs), dtype=np.int64)
    return codes(runs, [name for name in SETTINGS if name != "seed"])


def clusters(runs: pd.DataFrame) -> NDArray[np.int64]:
    """What is resampled together: configurations, or runs where a method has only one of them."""
    whole = configurations(runs)
    several = pd.Series(whole).groupby([runs["data"], runs["method"]]).transform("nunique") > 1
    single = codes(runs, SETTINGS) + len(runs)
    return np.where(several.to_numpy(bool), whole, single)


def final(runs: pd.DataFrame) -> pd.DataFrame:
    """The last checkpoint of each run, where a run has several: ``RUN@EPOCH`` beside ``RUN``."""
    if "epoch" not in runs or "run" not in runs or runs.empty:
        return runs.reset_index(drop=True)
    epoch = numbers(runs, "epoch")
    stem = runs["run"].astype(str).str.partition("@")[0]
    last = pd.Series(epoch).groupby(stem.to_numpy()).transform("max")
    kept = (epoch == last.to_numpy(np.float64)) | np.isnan(epoch)
    return runs[kept].reset_index(drop=True)
