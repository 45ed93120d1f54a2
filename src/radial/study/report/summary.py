"""What a study found, in a few sentences and figures: nothing without its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from radial.presentation.formats import between, fixed, known, listed, several, with_interval
from radial.study.analysis.analyse import Analysis
from radial.study.analysis.columns import final, method_order
from radial.study.analysis.peaks import POOLED
from radial.study.audit.rules import Audit
from radial.study.report.sheets import BASELINES

UNDECIDED = "not decided"
NOUNS = {"train_loss": "the training loss", "knn_1pct": "a kNN with 1 % of the labels",
         "steps": "the number of steps"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Card:
    """One large figure."""

    label: str
    value: str
    note: str = ""
    chip: tuple[str, str] | None = None  # kind, words


def runs_sentence(runs: pd.DataFrame) -> str:
    methods, heads = method_order(runs["method"]), list(dict.fromkeys(runs["head"]))
    seeds = several(runs["seed"].nunique(), "seed") if "seed" in runs else "seeds not known"
    if "verdict" in runs and (runs["verdict"] == "imported").all():
        seeds = "seeds not known"
    return (
        f"{several(len(runs), 'run')} on {listed(list(dict.fromkeys(runs['data'])))}: "
        f"{several(len(methods), 'method')} ({', '.join(methods)}), "
        f"{several(len(heads), 'head')} ({', '.join(heads)}), {seeds}."
    )


def decided(low: Any, high: Any) -> str:
    """good, bad or mute, by which side of 0 an interval lies."""
    if not (known(low) and known(high)) or low <= 0 <= high:
        return "mute"
    return "good" if low > 0 else "bad"


def head_sentences(heads: pd.DataFrame, on: Callable[[str], str]) -> Iterator[str]:
    for row in heads[heads["method"] == POOLED].to_dict("records"):
        value = with_interval(*(100 * row[name] for name in ("difference", "low", "high")))
        over = several(row["pairs"], "pair") + " of method and seed"
        if not known(row["low"]):
            verdict = f"{UNDECIDED}: there is no interval of a single pair"
        else:
            kind = decided(row["low"], row["high"])
            verdict = {"mute": UNDECIDED, "good": f"{row['b']} is ahead",
                       "bad": f"{row['b']} is behind"}[kind]  # fmt: skip
        yield (
            f"{on(row['data'])}{row['b']} minus {row['a']} is {value} points of accuracy "
            f"over {over}: {verdict}."
        )


def score_sentences(analysis: Analysis, on: Callable[[str], str]) -> Iterator[str]:
    judged = analysis.judgement
    for data, group in judged.groupby("data", sort=False):
        scores = group[group["kind"] == "score"].dropna(subset=["spearman"])
        if scores.empty:
            continue
        best = scores.loc[scores["spearman"].idxmax()]
        ranking = int((scores["verdict"] == "ranks runs").sum())
        rank = "ranks" if ranking == 1 else "rank"
        yield (
            f"{on(str(data))}{ranking} of {several(len(scores), 'score')} {rank} the runs of a "
            f"method beyond chance (Holm). The highest mean ρ within methods is that of "
            f"{best['score']}, "
            f"{with_interval(best['spearman'], best['low'], best['high'], 2)} over "
            f"{several(int(best['n']), 'run')}"
            f"{_against(analysis.comparisons, str(data), str(best['score']))}."
        )


def _against(comparisons: pd.DataFrame, data: str, score: str) -> str:
    """Whether it ranks better than the baselines, by paired intervals."""
    rows = comparisons[(comparisons["data"] == data) & (comparisons["a"] == score)]
    found = []
    for row in rows.to_dict("records"):
        noun = NOUNS.get(row["b"], BASELINES.get(row["b"], row["b"]))
        value = with_interval(row["difference"], row["low"], row["high"], 2)
        kind = decided(row["low"], row["high"])
        how = {"good": "above", "bad": "below", "mute": f"{UNDECIDED} against"}[kind]
        found.append(f"{how} {noun}, {value}")
    return "; " + "; ".join(found) if found else ""


def summary(
    runs: pd.DataFrame, analysis: Analysis, audit: Audit, unfinished: str = ""
) -> list[str]:
    """What can be said in a few sentences; ``unfinished`` is what is not done of the plan."""
    single = runs["data"].nunique() == 1

    def on(data: str) -> str:
        return "" if single else f"On {data}, "

    return [
        runs_sentence(final(runs)),
        *([f"{unfinished}."] if unfinished else []),
        *head_sentences(analysis.heads, on),
        *score_sentences(analysis, on),
        f"{audit.sentences[0][0].upper()}{audit.sentences[0][1:]}.",
    ]


def cards(runs: pd.DataFrame, analysis: Analysis, audit: Audit) -> list[Card]:
    """The figures at the top: runs, what did not learn, heads, scores."""
    runs = final(runs)
    methods, heads = runs["method"].nunique(), runs["head"].nunique()
    flagged = int(audit.counts["flagged"].sum())
    found = [
        Card(label="Runs", value=f"{len(runs):,}",
             note=f"{several(methods, 'method')} × {several(heads, 'head')}"),
        Card(label="No sign of learning", value=f"{flagged:,}", note=f"of {len(runs):,} runs",
             chip=("bad" if flagged > len(runs) / 2 else "warn" if flagged else "good", "audit")),
    ]  # fmt: skip
    several_sets = runs["data"].nunique() > 1
    for row in analysis.heads[analysis.heads["method"] == POOLED].to_dict("records"):
        value, low, high = (100 * row[name] for name in ("difference", "low", "high"))
        kind = decided(low, high)
        said = {"mute": UNDECIDED, "good": "ahead", "bad": "behind"}[kind]
        on = f" · {row['data']}" if several_sets else ""
        found.append(
            Card(label=f"{row['b']} − {row['a']}{on}", value=fixed(value, sign=True),
                 note=f"points {between(low, high)}", chip=(kind, said))
        )  # fmt: skip
    for data, group in analysis.judgement.groupby("data", sort=False):
        scores = group[group["kind"] == "score"].dropna(subset=["spearman"])
        if len(scores):
            best = scores.loc[scores["spearman"].idxmax()]
            on = f" · {data}" if several_sets else ""
            chips = {"ranks runs": "good", "ranks them backwards": "bad"}
            found.append(
                Card(label=f"Best within-method ρ{on}",
                     value=fixed(best["spearman"], 2, sign=True),
                     note=f"{best['score']} {between(best['low'], best['high'], 2)}",
                     chip=(chips.get(best["verdict"], "mute"), best["verdict"]))
            )  # fmt: skip
    return found
