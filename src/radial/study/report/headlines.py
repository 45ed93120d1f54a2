"""What a study found, in a few sentences and large figures: nothing without its interval.

The score that is spoken of is the one declared in advance, by which `radial score` ranks. The
highest of many correlations is high partly by chance: it is named as that, and no figure is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from radial.metrics.registry import HEADLINES
from radial.presentation import between, fixed, known, listed, several, with_interval
from radial.study.analysis.columns import final, method_order
from radial.study.analysis.peaks import POOLED
from radial.study.report.content import BASELINES
from radial.study.report.material import Report

UNDECIDED = "not decided"
NOUNS = {"train_loss": "the training loss", "knn_1pct": "a kNN with 1 % of the labels",
         "logistic_1pct": "a logistic regression with 1 % of the labels",
         "logistic_10pct": "a logistic regression with 10 % of the labels",
         "steps": "the number of steps"}  # fmt: skip
CHIPS = {"ranks runs": "good", "ranks them backwards": "bad"}  # of a score's verdict; else mute


@dataclass(frozen=True, kw_only=True)
class KeyFigure:
    label: str
    value: str
    note: str = ""
    chip: tuple[str, str] | None = None  # kind, words


def declared(judged: pd.DataFrame) -> pd.Series | None:
    """The row of the score declared in advance, of one dataset: the first of HEADLINES that no
    other score has more runs than; None where the study has none of them.
    """
    scores = judged[judged["kind"] == "score"].set_index("score", drop=False)
    most = scores["n"].max()
    found = (scores.loc[name] for name in HEADLINES if name in scores.index)
    return next((row for row in found if row["n"] == most and known(row["spearman"])), None)


def summary(report: Report) -> list[str]:
    """What can be said in a few sentences."""
    first = report.audit.sentences[0]
    return [
        _runs_sentence(final(report.runs)),
        *([f"{report.unfinished}."] if report.unfinished else []),
        *_head_sentences(report),
        *_score_sentences(report),
        f"{first[0].upper()}{first[1:]}.",
    ]


def key_figures(report: Report) -> list[KeyFigure]:
    """The figures at the top: runs, what did not learn, heads, the score declared in advance."""
    runs = final(report.runs)
    methods, heads = runs["method"].nunique(), runs["head"].nunique()
    flagged = int(report.audit.counts["flagged"].sum())
    kind = "bad" if flagged > len(runs) / 2 else "warn" if flagged else "good"
    found = [
        KeyFigure(label="Runs", value=f"{len(runs):,}",
                  note=f"{several(methods, 'method')} × {several(heads, 'head')}"),
        KeyFigure(label="No sign of learning", value=f"{flagged:,}", note=f"of {len(runs):,} runs",
                  chip=(kind, "audit")),
    ]  # fmt: skip
    for pair in _pooled(report):
        value, low, high = (100 * pair[name] for name in ("difference", "low", "high"))
        kind = _side(low, high)
        said = {"mute": UNDECIDED, "good": "ahead", "bad": "behind"}[kind]
        found.append(
            KeyFigure(label=f"{pair['b']} − {pair['a']}{_of(report, pair['data'])}",
                      value=fixed(value, sign=True), note=f"points {between(low, high)}",
                      chip=(kind, said))
        )  # fmt: skip
    for data, group in report.analysis.judgement.groupby("data", sort=False):
        if (row := declared(group)) is not None:
            found.append(
                KeyFigure(label=f"ρ within methods of the declared score{_of(report, data)}",
                          value=fixed(row["spearman"], 2, sign=True),
                          note=f"{row['score']} {between(row['low'], row['high'], 2)}",
                          chip=(CHIPS.get(row["verdict"], "mute"), row["verdict"]))
            )  # fmt: skip
    return found


def _of(report: Report, data: Any) -> str:
    return f" · {data}" if len(report.datasets) > 1 else ""


def _on(report: Report, data: Any) -> str:
    return f"On {data}, " if len(report.datasets) > 1 else ""


def _runs_sentence(runs: pd.DataFrame) -> str:
    methods, heads = method_order(runs["method"]), list(dict.fromkeys(runs["head"]))
    seeds = several(runs["seed"].nunique(), "seed") if "seed" in runs else "seeds not known"
    if "verdict" in runs and (runs["verdict"] == "imported").all():
        seeds = "seeds not known"
    return (
        f"{several(len(runs), 'run')} on {listed(list(dict.fromkeys(runs['data'])))}: "
        f"{several(len(methods), 'method')} ({', '.join(methods)}), "
        f"{several(len(heads), 'head')} ({', '.join(heads)}), {seeds}."
    )


def _side(low: Any, high: Any) -> str:
    """good, bad or mute, by which side of 0 an interval lies."""
    if not (known(low) and known(high)) or low <= 0 <= high:
        return "mute"
    return "good" if low > 0 else "bad"


def _pooled(report: Report) -> list[dict[str, Any]]:
    heads = report.analysis.heads
    return [dict(row) for row in heads[heads["method"] == POOLED].to_dict("records")]


def _head_sentences(report: Report) -> Iterator[str]:
    for row in _pooled(report):
        value = with_interval(*(100 * row[name] for name in ("difference", "low", "high")))
        if not known(row["low"]):
            verdict = f"{UNDECIDED}: there is no interval of a single pair"
        else:
            where = {"mute": UNDECIDED, "good": f"{row['b']} is ahead",
                     "bad": f"{row['b']} is behind"}  # fmt: skip
            verdict = where[_side(row["low"], row["high"])]
        yield (
            f"{_on(report, row['data'])}{row['b']} minus {row['a']} is {value} points of accuracy "
            f"over {several(row['pairs'], 'pair')} of method and seed: {verdict}."
        )


def _score_sentences(report: Report) -> Iterator[str]:
    """The declared score, and apart from it the best of all: the maximum of many is no evidence."""
    for data, group in report.analysis.judgement.groupby("data", sort=False):
        scores = group[group["kind"] == "score"].dropna(subset=["spearman"])
        if scores.empty:
            continue
        on = _on(report, data)
        if (row := declared(group)) is None:
            yield f"{on}no score of this study was declared in advance to rank by."
        else:
            value = with_interval(row["spearman"], row["low"], row["high"], 2)
            yield (
                f"{on}{row['score']}, the score declared in advance, has a mean ρ within methods "
                f"of {value} over {several(int(row['n']), 'run')}: {row['verdict']}"
                f"{_against(report, str(data), row['score'])}."
            )
        ranking = int((scores["verdict"] == "ranks runs").sum())
        rank = "ranks" if ranking == 1 else "rank"
        best = scores.loc[scores["spearman"].idxmax()]
        yield (
            f"{on}{ranking} of {several(len(scores), 'score')} {rank} the runs of a method beyond "
            f"chance (Holm). The best of {len(scores)} is {best['score']}, "
            f"{fixed(best['spearman'], 2, sign=True)}: the maximum of many, chosen on these runs, "
            "is no evidence for it."
        )


def _against(report: Report, data: str, score: str) -> str:
    """Whether it ranks better than the baselines, by paired intervals."""
    table = report.analysis.comparisons
    found = []
    for row in table[(table["data"] == data) & (table["a"] == score)].to_dict("records"):
        noun = NOUNS.get(row["b"], BASELINES.get(row["b"], row["b"]))
        value = with_interval(row["difference"], row["low"], row["high"], 2)
        how = {"good": "above", "bad": "below", "mute": f"{UNDECIDED} against"}
        found.append(f"{how[_side(row['low'], row['high'])]} {noun}, {value}")
    return "; " + "; ".join(found) if found else ""
