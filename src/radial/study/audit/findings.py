"""The findings of an audit in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from radial.study.audit.identical import Group

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from radial.study.audit.rules import Audit


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
    flags: pd.DataFrame,
    counts: pd.DataFrame,
    groups: Sequence[Group],
    correlations: pd.DataFrame,
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
    table = _table(("data", "method", "head"), ("runs", *found))
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
        _print_table(_correlations(audit.correlations), console)


def _correlations(correlations: pd.DataFrame) -> Table:
    def number(value: float) -> str:
        return "–" if math.isnan(value) else f"{value:+.2f}"

    titles = ("Pearson", "Spearman", "runs", "unflagged: Pearson", "Spearman", "runs")
    table, several = _table(("score with accuracy",), titles), correlations["data"].nunique() > 1
    for row in correlations.itertuples():
        everything = number(row.pearson_all), number(row.spearman_all), str(row.n_all)
        left = number(row.pearson_left), number(row.spearman_left), str(row.n_left)
        name = f"{row.data} {row.score}" if several else str(row.score)
        table.add_row(name, *everything, *left)
    return table


def _table(names: Sequence[str], numbers: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    return table


def _print_table(table: Table, console: Console) -> None:
    """As wide as it needs to be: a narrow terminal wraps lines, no cell is cut."""
    from rich.measure import Measurement

    roomy = console.options.update(max_width=10_000)
    table.width = Measurement.get(console, roomy, table).maximum
    console.print(table, markup=False, crop=False)
    console.print()
