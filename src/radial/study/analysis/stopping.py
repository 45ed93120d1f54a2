"""Which checkpoint of a run to keep, and when to stop: by a label-free score, judged by accuracy.

Legend: of one run, the checkpoints that were kept on the way and its last, in order of epochs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from radial.metrics.registry import HEADLINES, SCORES, quality
from radial.study.analysis.columns import frame

FEWEST = 3  # checkpoints of a run; fewer leave nothing to choose
RULES = ("last", "kept", "stopped")
COLUMNS = ("data", "method", "head", "seed", "run", "checkpoints", "best", "best_epoch",
           *(f"{rule}{what}" for rule in RULES for what in ("", "_epoch", "_regret")),
           "trained_epoch", "saved")  # fmt: skip


def stopping_table(
    runs: pd.DataFrame, score: str = HEADLINES[0], *, patience: int = 3
) -> pd.DataFrame:
    """What each rule would have kept of each run, and by how much it falls short of the best.

    - last: the last checkpoint, as without a monitor;
    - kept: that of the best score, the earliest of equals (``--keep best``);
    - stopped: the same, where training ends once ``patience`` checkpoints in a row were not
      better (``--patience``); ``trained_epoch`` is where it ended, ``saved`` the share of epochs
      that were not trained.

    Args:
        runs: rows ``RUN`` and ``RUN@EPOCH`` with epoch, accuracy and the score, as
            `radial.study.results.read_runs` gives them.
        score: name@layer, a column.
        patience: in checkpoints.

    Returns:
        A row a run with at least three checkpoints: accuracies, their epochs, and regrets, the
        accuracy of its best checkpoint less that of the one that is kept.

    Raises:
        ValueError: no column of that name.
    """
    if score not in runs:
        known = ", ".join(str(name) for name in runs.columns if "@" in str(name)) or "none"
        raise ValueError(f"no scores {score!r} among the runs; there are: {known}")
    known = runs.dropna(subset=[score, "accuracy", "epoch"])
    stem = known["run"].astype(str).str.partition("@")[0]
    better = SCORES[score.partition("@")[0]].better
    rows = [
        _row(str(run), group.sort_values("epoch"), score, better, patience)
        for run, group in known.groupby(stem.to_numpy(), sort=False)
        if len(group) >= FEWEST
    ]
    return frame(rows, COLUMNS)


def _row(run: str, group: pd.DataFrame, score: str, better: str, patience: int) -> dict[str, Any]:
    accuracy, epoch = (group[name].to_numpy(np.float64) for name in ("accuracy", "epoch"))
    value = quality(better, group[score].to_numpy(np.float64))
    leaders = [int(np.argmax(value[: place + 1])) for place in range(len(value))]
    ends = (place for place, leader in enumerate(leaders) if place - leader >= patience)
    end = next(ends, len(value) - 1)
    best = int(np.argmax(accuracy))
    chosen = {"last": len(value) - 1, "kept": leaders[-1], "stopped": leaders[end]}
    row: dict[str, Any] = {name: group[name].iloc[0] for name in ("data", "method", "head")}
    row |= {"seed": group["seed"].iloc[0] if "seed" in group else None, "run": run}
    row |= {"checkpoints": len(group), "best": accuracy[best], "best_epoch": epoch[best]}
    for rule, place in chosen.items():
        row |= {rule: accuracy[place], f"{rule}_epoch": epoch[place]}
        row[f"{rule}_regret"] = accuracy[best] - accuracy[place]
    return row | {"trained_epoch": epoch[end], "saved": 1.0 - epoch[end] / epoch[-1]}


def stopping_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Mean regrets of the rules with 95 % intervals over runs (Student's t), and what was saved.

    Args:
        table: of `stopping_table`.

    Returns:
        A row for each rule: runs, regret, low, high (None for fewer than two runs), worst and
        saved.
    """
    from scipy.stats import t

    rows = []
    for rule in RULES:
        regret = table[f"{rule}_regret"].to_numpy(np.float64)
        n = len(regret)
        low = high = None
        if n >= 2:
            reach = float(t.ppf(0.975, n - 1)) * float(regret.std(ddof=1)) / n**0.5
            low, high = float(regret.mean()) - reach, float(regret.mean()) + reach
        saved = float(table["saved"].mean()) if rule == "stopped" and n else 0.0
        mean, worst = (float(f(regret)) if n else np.nan for f in (np.mean, np.max))
        rows.append({"rule": rule, "runs": n, "regret": mean, "low": low, "high": high,
                     "worst": worst, "saved": saved})  # fmt: skip
    return pd.DataFrame(rows)
