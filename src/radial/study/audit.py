"""Which runs of a study learned nothing, and what its correlations are without them.

- ``no_signal``: training said so (dead head, collapsed, diverged), or the training loss is that of
  a constant output and nothing stronger speaks against it: embeddings that training saw differ, or
  an accuracy above the start's (:func:`radial.verdicts.constant_output`).
- ``no_learning``: less than 5 % of the gap between the loss of a constant output and the default
  head's is closed (:func:`gaps`), and the accuracy is not above the start's.
- ``identical``: runs of one data and method have one accuracy though their settings differ (see
  identical.py).
- ``unmoved``: the accuracy is that of the backbone before the first step, to half a test image,
  and five images at least are wrong.
- ``not_better``: it is not above that. Only a note: such a run may have learned something, and
  leaving it out of a correlation with accuracy would choose runs by their accuracy.

The *training* loss is taken: validation batches may be smaller, and for SimCLR a constant output
then has another loss. Frames in, frames out; no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from radial.presentation import terminal_table
from radial.study.analysis.columns import numbers, oriented, score_columns
from radial.study.analysis.correlation import correlations
from radial.study.identical import FEW, SAME, Group, find_groups, groups_frame, setting_text
from radial.verdicts import CLEAR, CLOSED, DIVERGED, MARGINS, constant_loss, constant_output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

RULES = ("no_signal", "no_learning", "identical", "unmoved", "not_better")
DEAD = RULES[:-1]  # what correlations are also computed without
NEEDED = ("run", "data", "method", "head", "train_loss", "accuracy")
# A default-head run is compared with runs of the same of these, and of the same trained epochs.
ALIKE = ("data", "method", "backbone", "weights", "temperature")


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found.

    Args:
        flags: a row for each run, in the order of the runs: a column a rule, and why.
        counts: runs that each rule flags, by data, method and head; ``flagged``: by any of DEAD;
            ``diverged``: those of no_signal that did.
        identical: groups of runs with one accuracy.
        correlations: of each score's quality with accuracy, by data, for all runs and without
            the flagged.
        sentences: the findings in words, most damning first.
    """

    flags: pd.DataFrame
    counts: pd.DataFrame
    identical: pd.DataFrame
    correlations: pd.DataFrame
    sentences: tuple[str, ...]


def audit(runs: pd.DataFrame, better: Mapping[str, str] = MappingProxyType({})) -> Audit:
    """Look over the runs, a row each (see results.py).

    Args:
        runs: the table; ``run``, ``data``, ``method`` and ``head`` are needed.
        better: which way each score (a column with an @) is better: higher, lower, near 1; those
            with "none" are left out, those not named count as higher.
    """
    runs = runs if "accuracy" in runs else runs.assign(accuracy=math.nan)
    if missing := [name for name in NEEDED if name not in runs]:
        raise ValueError(f"the table of runs has no column {', '.join(missing)}")
    if runs.empty:
        raise ValueError("the table of runs is empty")
    runs = runs.reset_index(drop=True)
    flags = runs.reindex(columns=["run", "data", "method", "head", "radial_function"])
    is_rbfn = flags["head"].astype(str).str.startswith("rbfn")
    flags["radial_function"] = flags["radial_function"].astype(object).where(is_rbfn, None)
    flags["train_loss"] = _column(runs, "train_loss")
    flags["constant_loss"] = constant_losses(runs)
    flags["default_loss"], flags["gap_closed"] = gaps(runs)
    flags["accuracy"] = _column(runs, "accuracy")
    flags["start_accuracy"] = _column(runs, "start_accuracy")
    groups = find_groups(runs)
    flags["verdict"] = runs.get("verdict", "")
    learned = _column(runs, "accuracy_low") > flags["start_accuracy"]  # labels say so
    evidence = _evidence(runs, flags, learned)
    moved = flags["accuracy"] - flags["start_accuracy"]
    images = _column(runs, "test_samples")
    half_an_image = (0.5 / images).fillna(SAME)
    too_good = (1 - flags["accuracy"]) * images < FEW  # hardly an image is left to move
    found = {
        "no_signal": evidence != "",
        "no_learning": (flags["gap_closed"] < CLOSED) & ~learned,
        "identical": flags.index.isin([row for group in groups for row in group.rows]),
        "unmoved": (moved.abs() <= half_an_image) & _same_as_start(runs) & ~too_good,
        "not_better": moved <= 0,
    }
    for rule in RULES:
        flags[rule] = np.asarray(found[rule], dtype=bool)
    flags["flags"] = [
        ", ".join(rule.replace("_", " ") for rule, on in zip(RULES, row) if on)
        for row in flags[list(RULES)].to_numpy()
    ]
    flags["reasons"] = reasons(flags, evidence, groups)
    dead = flags[list(DEAD)].any(axis=1)
    turned = _correlations(runs, dead, better)
    counts = _counts(flags, dead)
    return Audit(
        flags=flags,
        counts=counts,
        identical=groups_frame(groups, runs),
        correlations=turned,
        sentences=sentences(flags, counts, groups, turned),
    )


def _column(runs: pd.DataFrame, name: str) -> pd.Series:
    return pd.Series(numbers(runs, name), index=runs.index)


def _evidence(runs: pd.DataFrame, flags: pd.DataFrame, learned: pd.Series) -> pd.Series:
    """Why each run must have a constant output; empty where nothing says so."""
    columns = (flags["method"], flags["verdict"], flags["train_loss"], flags["constant_loss"])
    found = [
        constant_output(
            method, verdict=verdict, loss=loss, constant=constant, spread=spread, learned=above
        )
        for method, verdict, loss, constant, spread, above in zip(
            *columns, _column(runs, "spread"), learned
        )
    ]
    return pd.Series(found, runs.index, dtype=object)


def _same_as_start(runs: pd.DataFrame) -> pd.Series:
    """Whether F1, precision and recall are the start's too, where they are known: as many right
    images may be others.
    """
    same = pd.Series(True, index=runs.index)
    for name in ("f1", "precision", "recall"):
        change = (_column(runs, name) - _column(runs, f"start_{name}")).abs()
        same &= ~(change > 1e-6)
    return same


def constant_losses(runs: pd.DataFrame) -> pd.Series:
    """The loss of a constant output for each run: as its result has it, else from its settings."""
    known = _column(runs, "constant_loss")
    names = ("batch_size", "queue_size", "prototypes", "output_dim")
    sizes = {name: _column(runs, name) for name in names}
    found = [
        constant_loss(str(method), **{name: sizes[name].loc[row] for name in names})
        for row, method in runs["method"].items()
    ]
    return known.fillna(pd.Series(found, index=runs.index, dtype=float))


def gaps(runs: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The default head's loss L₀ beside each run, and the share of the gap to it that it closed.

    With c the loss of a constant output, the share is (c − L) / (c − L₀). Where c is near the
    largest loss (SimCLR, MoCo, SwAV) that is the way a run has gone from knowing nothing to where
    the default head got: 0 nothing, 1 as far. For BYOL and SimSiam c = −1 is the *smallest* loss,
    the trivial solution, and runs that live stay above it: there the share is a distance from
    that solution, in units of the default head's. Near 0 it is the same sentence, "the output is
    constant"; large values mean nothing: a run that has not begun is far from trivial, too.

    L₀ is the mean over live default-head runs of the same data, method, backbone, weights,
    temperature, trained epochs and c, of the same depth if there is one. Live means: below c
    (above −1) by at least ten times the margin within which a loss counts as c. Without such a
    run both are NaN: where the default head has gone nowhere either, nothing can be told.
    """
    loss, constant = _column(runs, "train_loss"), constant_losses(runs)
    below = runs["method"].map(lambda method: MARGINS.get(method, ("", 0.0))[0] == "below")
    gap = (constant - loss).where(~below.astype(bool), loss - constant)
    margins = runs["method"].map(lambda method: MARGINS.get(method, ("", math.inf))[1])
    live = runs["head"].eq("default") & (gap > CLEAR * margins)
    epoch = "epoch" if "epoch" in runs else "epochs"
    names = [name for name in (*ALIKE, epoch) if name in runs]
    columns = [[setting_text(value) for value in runs[name]] for name in names]
    keys = list(zip(*columns, constant.round(6).map(setting_text)))
    depth = [setting_text(value) for value in runs.get("num_layers", pd.Series(0, runs.index))]
    losses: dict[tuple[Any, ...], list[float]] = {}
    for row in np.flatnonzero(live):
        losses.setdefault(keys[row], []).append(loss.iloc[row])
        losses.setdefault((*keys[row], depth[row]), []).append(loss.iloc[row])
    found = [losses.get((*key, deep), losses.get(key)) for key, deep in zip(keys, depth)]
    default = pd.Series([np.mean(f) if f else math.nan for f in found], runs.index, dtype=float)
    return default, (constant - loss) / (constant - default)


def _counts(flags: pd.DataFrame, dead: pd.Series) -> pd.DataFrame:
    by = ["data", "method", "head"]
    counted = flags.assign(runs=1, flagged=dead, diverged=flags["verdict"] == DIVERGED)
    columns = ["runs", "diverged", *RULES, "flagged"]
    return counted.groupby(by, sort=False)[columns].sum().reset_index()


def _correlations(runs: pd.DataFrame, dead: pd.Series, better: Mapping[str, str]) -> pd.DataFrame:
    """Of each score, turned so that more is better, with accuracy; NaN where it has no meaning."""
    ways = {name: better.get(name, "higher") for name in score_columns(runs)}
    ways = {name: way for name, way in ways.items() if way != "none"}
    turned = {name: oriented(numbers(runs, name), way) for name, way in ways.items()}
    rows = runs[["data", "accuracy"]].assign(**turned)
    keys, figures = ["data", "score"], ["n", "pearson", "spearman"]
    every, left = (
        correlations(part, ways, ["accuracy"]).set_index(keys)[figures].add_suffix(suffix)
        for part, suffix in ((rows, "_all"), (rows[~dead], "_left"))
    )
    both = every.join(left).reset_index()
    both["n_left"] = both["n_left"].fillna(0).astype(int)  # of data all of whose runs are flagged
    both.insert(2, "better", both["score"].map(ways))
    return both


def reasons(flags: pd.DataFrame, evidence: pd.Series, groups: Sequence[Group]) -> list[str]:
    """Why each run is flagged, ``evidence`` of a constant output first; empty where it is not."""
    group_of = {row: group for group in groups for row in group.rows}
    return [
        "; ".join(filter(None, [evidence[run.Index], *_why(run, group_of.get(run.Index))]))
        for run in flags.itertuples()
    ]


def _why(run: Any, group: Group | None) -> Iterator[str]:
    if run.no_learning:
        trivial = run.constant_loss < run.default_loss
        what = "distance from a constant output's loss is {} of" if trivial else "{} of the way to"
        yield f"{what.format(percent(run.gap_closed))} the default head's {run.default_loss:.4g}"
    if group is not None:
        over = ", ".join(group.differ)
        yield f"accuracy {run.accuracy:.6f} of {len(group.rows)} runs over {over}"
    if run.unmoved:
        yield f"accuracy {run.accuracy:.4f} is that before the first step"
    elif run.not_better:
        yield f"accuracy {run.accuracy:.4f}, before the first step {run.start_accuracy:.4f}"


def sentences(
    flags: pd.DataFrame, counts: pd.DataFrame, groups: Sequence[Group], correlations: pd.DataFrame
) -> tuple[str, ...]:
    """The sum, then what concerns most runs, then one on the correlations of each dataset, then
    what could not be checked.
    """
    flagged, total = int(counts["flagged"].sum()), len(flags)
    if flagged:
        first = f"{flagged} of {total} runs show no sign of having learned"
    else:
        first = f"none of {total} runs is flagged as having learned nothing"
    found = [(len(group.rows), sentence(group)) for group in groups]
    for row in counts.itertuples():
        found += _of_part(row)
    found.sort(key=lambda item: -item[0])  # stable: groups first
    told = (text for _, text in found)
    return (first, *told, *_changes(correlations), *_unchecked(flags))


def _changes(correlations: pd.DataFrame) -> Iterator[str]:
    """Of each dataset the score whose correlation the flagged runs change most; all are a table."""
    both = correlations.dropna(subset=["spearman_all", "spearman_left"])
    both = both[both["n_left"] < both["n_all"]]
    for data, part in both.groupby("data", sort=False):
        row = part.loc[(part["spearman_all"] - part["spearman_left"]).abs().idxmax()]
        turned = int((part["spearman_all"] * part["spearman_left"] < 0).sum())
        yield (
            f"{data} {row['score']}: Spearman with accuracy {row['spearman_all']:+.2f} over "
            f"{row['n_all']} runs, {row['spearman_left']:+.2f} over the {row['n_left']} that are "
            f"not flagged: the largest change; {turned} of {len(part)} scores change their sign"
        )


def sentence(group: Group) -> str:
    """One finding, such as "digits byol: all 6 runs of head linear have one accuracy, …"."""
    size = len(group.rows)
    whole: dict[str, list[tuple[str, int]]] = {}
    for name, value, runs in group.all_of:
        whole.setdefault(name, []).append((value, runs))
    among = [
        (sum(runs for _, runs in values), f"{name} {', '.join(value for value, _ in values)}")
        for name, values in whole.items()
    ]
    if among and among[0][0] == size:
        who = f"all {size} runs of {among[0][1]}"
    elif among:
        who = f"{size} runs, among them {' and '.join(f'all {n} of {what}' for n, what in among)},"
    elif group.common:
        who = f"{size} runs of {', '.join(f'{name} {value}' for name, value in group.common)}"
    else:
        who = f"{size} runs"
    over = ", ".join(group.differ)
    return (
        f"{group.data} {group.method}: {who} have one accuracy, {group.accuracy:.6f}, over {over}"
    )


def _of_part(row: Any) -> Iterator[tuple[int, str]]:
    part, constant = f"{row.data} {row.method} {row.head}:", row.no_signal - row.diverged
    if row.no_learning:
        also = f"; {constant} have a constant output" if constant else ""
        yield (
            max(row.no_learning, constant),
            f"{part} {row.no_learning} of {row.runs} runs closed less than 5 % of the gap between "
            f"the loss of a constant output and the default head's{also}",
        )
    elif constant:
        yield constant, f"{part} {constant} of {row.runs} runs have a constant output"
    if row.diverged:
        yield row.diverged, f"{part} {row.diverged} of {row.runs} runs diverged"
    if row.unmoved:
        yield (
            row.unmoved,
            f"{part} {row.unmoved} of {row.runs} runs have the accuracy of the backbone before "
            "the first step",
        )
    if row.not_better > row.unmoved:
        worse = row.not_better - row.unmoved
        yield (
            worse,
            f"{part} {worse} of {row.runs} runs are not above the backbone they started from",
        )


def _unchecked(flags: pd.DataFrame) -> Iterator[str]:
    def parts(chosen: pd.Series) -> str:
        pairs = flags.loc[chosen, ["data", "method"]].drop_duplicates()
        return ", ".join(f"{data} {method}" for data, method in pairs.to_numpy())

    unknown = flags["constant_loss"].isna() | flags["train_loss"].isna()
    unknown &= ~flags["no_signal"]  # training has said what there is to say
    if unknown.any():
        yield f"not checked, no loss or size known: {int(unknown.sum())} runs of {parts(unknown)}"
    alone = flags["gap_closed"].isna() & flags["train_loss"].notna() & ~unknown
    if alone.any():
        yield (
            f"not compared, no live default-head run like them: {int(alone.sum())} runs of "
            f"{parts(alone)}"
        )


def percent(share: float) -> str:
    return f"{max(0.0, 100 * share):.1f} %"


def print_audit(audit: Audit, console: Console) -> None:
    """Counts by data, method and head; the findings; correlations, where there are scores."""
    counts = audit.counts
    found = [name for name in counts.columns[4:] if name == "flagged" or counts[name].any()]
    titles = [name.replace("_", " ") for name in ("runs", *found)]
    table = terminal_table(("data", "method", "head"), titles)
    for row in counts.itertuples():
        numbers = (getattr(row, name) for name in ("runs", *found))
        style = "red" if row.flagged == row.runs else "yellow" if row.flagged else None
        names = (str(row.data), str(row.method), str(row.head))
        table.add_row(*names, *(str(n) if n else "–" for n in numbers), style=style)
    _print_table(table, console)
    for text in audit.sentences:
        console.print(f"- {text}", markup=False, highlight=False, soft_wrap=True)
    if len(audit.correlations):
        console.print()
        _print_table(_correlation_table(audit.correlations), console)


def _correlation_table(correlations: pd.DataFrame) -> Table:
    def number(value: float) -> str:
        return "–" if math.isnan(value) else f"{value:+.2f}"

    titles = ("Pearson", "Spearman", "runs", "unflagged: Pearson", "Spearman", "runs")
    table, several = (
        terminal_table(["score with accuracy"], titles),
        correlations["data"].nunique() > 1,
    )
    for row in correlations.itertuples():
        everything = number(row.pearson_all), number(row.spearman_all), str(row.n_all)
        left = number(row.pearson_left), number(row.spearman_left), str(row.n_left)
        name = f"{row.data} {row.score}" if several else str(row.score)
        table.add_row(name, *everything, *left)
    return table


def _print_table(table: Table, console: Console) -> None:
    """As wide as it needs to be: a narrow terminal wraps lines, no cell is cut."""
    from rich.measure import Measurement

    roomy = console.options.update(max_width=10_000)
    table.width = Measurement.get(console, roomy, table).maximum
    console.print(table, markup=False, crop=False)
    console.print()
