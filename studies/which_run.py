"""Tables of which run, with which score, and which pool it is fooled by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from candidates import judge
from confirmed import CHALLENGER, WEAK
from evidence import Evidence, fisher, spearman
from frames import (
    AGAIN,
    BEST,
    CONFIRMING,
    DATA,
    KEPT,
    LABELS,
    METHODS,
    NAMES,
    READ,
    REGISTERED,
    challenged,
    confirming,
    kept,
    lost_points,
    markdown,
    points,
    rho,
    unchosen,
    with_challenger,
)
from scipy.stats import kendalltau

from radial.study.analysis import partial_spearman
from radial.study.analysis.columns import final, numbers

TO_BEAT = ("arc@backbone", "rotation_probe@backbone", "info_nce@backbone", "clid@backbone",
           "rankme@backbone", "lidar@projector", "train_loss")  # fmt: skip  # as registered


def ranking_table(found: Evidence, names: Mapping[str, str], best: str = BEST) -> str:
    """ρ, the least method, the better half, regret, and how far the best is ahead."""
    table, ahead = found.table(), found.ahead(best)
    rows = []
    for name, text in names.items():
        if name not in table.index:
            continue
        row = table.loc[name]
        behind = rho(*ahead.loc[name, ["ahead", "low", "high"]]) if name != best else ""
        p = "" if np.isnan(row["p_holm"]) else f"{row['p_holm']:.3f}".replace("0.000", "< 0.001")
        rows.append([
            text, rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
            rho(row["top_half"]), lost_points(row), p, behind,
        ])  # fmt: skip
    lost = np.mean([cell.accuracy.max() - cell.accuracy.mean() for cell in found.cells])
    rows.append(["a random run", "", "", "", points(lost, sign=False), "", ""])
    header = ["", "ρ with accuracy", "least method", "better half", "regret@1", "p (Holm)",
              "view retrieval is ahead by" if best == BEST else "the mean is ahead by"]  # fmt: skip
    return markdown(header, rows)


def datasets_table(*studies: str) -> str:
    """The main scores on each study alone."""
    rows = []
    for name in studies:
        found = confirming(name)
        table = found.table()
        for score in (BEST, "arc@backbone", "rankme@backbone", "logistic_1pct", "knn"):
            row = table.loc[score]
            rows.append([DATA[name], str(found.runs), str(len(found.cells)),
                         NAMES[score].partition(":")[0],
                         rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                         lost_points(row)])  # fmt: skip
    return markdown(["", "runs", "cells", "", "ρ with accuracy", "least method", "regret@1"], rows)


def goals_table() -> str:
    """The registered goals: on the runs judged first, on those trained again, and on all."""
    parts, read = (REGISTERED, AGAIN, CONFIRMING), (READ, AGAIN, (*READ, *AGAIN))
    found = [confirming(*names).only([BEST, *TO_BEAT, "logistic_1pct"]) for names in parts]
    header = ["goal", *(f"{text}, {each.runs} runs" for text, each in
                        zip(("judged first", "again", "all"), found, strict=True))]  # fmt: skip
    tables = [each.table().loc[BEST] for each in found]
    ahead = [each.ahead(BEST) for each in found]
    rows = [
        ["mean ρ ≥ 0.80, lower bound ≥ 0.6",
         *(rho(row["rho"], row["low"], row["high"]) for row in tables)],
        ["no method below 0.5", *(_weakest(each) for each in found)],
        ["better half ≥ 0.5", *(rho(row["top_half"]) for row in tables)],
        ["regret@1 ≤ 0.5 points", *(lost_points(row) for row in tables)],
    ]  # fmt: skip
    rows += [
        [f"{goal} {NAMES[name].partition(':')[0]}",
         *(rho(*each.loc[name, ["ahead", "low", "high"]]) for each in ahead)]
        for goal, names in (("ahead of", TO_BEAT), ("not behind", ("logistic_1pct",)))
        for name in names
    ]  # fmt: skip
    challenge = []
    for names in read:
        each = challenged(*names).only([BEST, CHALLENGER])
        (mean, low, high), (least, most) = (
            each.ahead(CHALLENGER, percent).loc[BEST, columns]
            for percent, columns in ((95, ["ahead", "low", "high"]), (99, ["low", "high"]))
        )
        told = f"{rho(mean, low, high)}; 99 %: {rho(least)} to {rho(most)}"
        challenge.append(f"{told}; {each.runs} runs")
    rows.append([f"{NAMES[CHALLENGER]} ahead of view retrieval", *challenge])
    return markdown(header, rows)


def _weakest(found: Evidence) -> str:
    """The methods at which view retrieval misses the goal, else the weakest one."""
    means = found.methods()[BEST].sort_values()
    short = means[means < WEAK] if means.iloc[0] < WEAK else means[:1]
    return ", ".join(f"{METHODS[name]} {rho(value)}" for name, value in short.items())


def counted_table() -> str:
    """The registered mean, and what it is when the same cells count otherwise."""
    rows = []
    shorter = [name for name in CONFIRMING if name != "long"]
    whole, short = (confirming(*n).only([BEST, "knn"]) for n in (CONFIRMING, shorter))
    for text, found, by, apart in (
        ("every cell alike, **as registered**", whole, None, True),
        ("the same; a method is drawn in all its studies at once", whole, None, False),
        ("the five studies alike", whole, "data", True),
        ("the nine methods alike", whole, "method", True),
        ("without `long`, which is read at four budgets", short, None, True),
    ):
        groups = pd.Series([str(n) if by is None else getattr(cell, by)
                            for n, cell in enumerate(found.cells)])  # fmt: skip
        weight = 1 / groups.map(groups.value_counts()).to_numpy()
        mine, ceiling = (found.counted(name, weight, apart=apart) for name in (BEST, "knn"))
        rows.append([text, f"{found.runs}", f"{len(found.cells)}",
                     rho(mine["rho"], mine["low"], mine["high"]), rho(mine["plain"]),
                     lost_points(mine), rho(ceiling["rho"], ceiling["low"], ceiling["high"]),
                     lost_points(ceiling)])  # fmt: skip
    header = ["how the cells count", "runs", "cells", "view retrieval: ρ", "plain mean of ρ",
              "regret@1", "kNN, all labels: ρ", "regret@1"]  # fmt: skip
    return markdown(header, rows)


def settings_table() -> str:
    """What a rule by settings alone would do, and view retrieval among runs of equal settings."""
    rules = {"color_strength": "more colour jitter", "min_scale": "larger crops",
             "base_lr": "a larger learning rate"}  # fmt: skip
    runs = pd.concat([unchosen(name)[0] for name in CONFIRMING], ignore_index=True)
    found = Evidence(runs, [BEST, *rules, "knn"], labelled=["knn"])
    table = found.table()
    rows = []
    for name in (BEST, *rules, "knn"):
        text, row = rules.get(name, NAMES.get(name, name)), table.loc[name]
        controls = [n for n in ("color_strength", "min_scale") if name in (BEST, "knn")]
        left = [fisher(partial_spearman(
            cell.scores[:, found.names.index(name)], cell.accuracy,
            {n: cell.scores[:, found.names.index(n)] for n in controls},
        ), len(cell.accuracy)) for cell in found.cells]  # fmt: skip
        equal = rho(float(np.tanh(np.nanmean(left)))) if controls else ""
        rows.append([text, rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                     lost_points(row), equal])  # fmt: skip
    header = ["", "ρ with accuracy", "least method", "regret@1", "ρ at equal jitter and crops"]
    return markdown(header, rows)


def exclusions_table(*studies: str) -> str:
    """View retrieval without the runs that a verdict leaves out, and Kendall's τ-b."""
    rows = []
    for name in studies:
        runs, _ = unchosen(name)
        poor = runs.loc[runs["verdict"].notna() & (runs["verdict"] != "ok"), "run"]
        whole, left = (
            Evidence(part, [BEST, "knn"]) for part in (runs, runs[~runs["run"].isin(poor)])
        )
        tau = np.mean([kendalltau(c.scores[:, 0], c.accuracy)[0] for c in whole.cells])
        (mine, ceiling), (mine_left, ceiling_left) = np.tanh([whole.z.mean(0), left.z.mean(0)])
        rows.append([DATA[name], rho(mine), rho(tau), str(poor.nunique()), rho(mine_left),
                     rho(ceiling), rho(ceiling_left)])  # fmt: skip
    header = ["", "ρ", "τ-b", "dead or collapsed", "ρ without them",
              "kNN, all labels: ρ", "without them"]  # fmt: skip
    return markdown(header, rows)


def methods_table(found: Evidence) -> str:
    """ρ of view retrieval and of kNN with all labels in every cell."""
    places = [found.names.index(name) for name in (BEST, "knn")]
    values = {
        (cell.method, cell.data, cell.budget): " / ".join(
            rho(spearman(cell.scores[:, place], cell.accuracy)) for place in places
        )
        for cell in found.cells
    }
    columns = list(dict.fromkeys((cell.data, cell.budget) for cell in found.cells))
    header = ["", *(f"{data}, epoch {float(budget):.0f}" for data, budget in columns)]
    rows = []
    for method, text in METHODS.items():
        cells = [values.get((method, *column), "") for column in columns]
        if any(cells):
            rows.append([text, *cells])
    return markdown(header, rows)


def candidates_table(most: int = 8) -> str:
    """The best candidates on the hundred runs of `scores`, view retrieval among them."""
    table = judge(KEPT / "candidates" / "scores.parquet", KEPT / "scores" / "results.parquet",
                  ["knn"])  # fmt: skip
    table = pd.concat([table.head(most), table[table["candidate"] == "knn"]])
    table = table.drop_duplicates("candidate").replace({"candidate": LABELS})
    rows = [
        [row["candidate"], rho(row["rho"]), rho(row["least"]), rho(row["top half"]),
         f"{row['regret']:.1f}", rho(row["colour"])]
        for _, row in table.iterrows()
    ]  # fmt: skip
    return markdown(["", "ρ", "least method", "better half", "regret@1", "worth of colour"], rows)


def challengers_table() -> str:
    """The challenger beside view retrieval, on each study it was read on and on all."""
    rows = []
    for studies in (*((name,) for name in READ), READ, AGAIN):
        found = challenged(*studies)
        table, ahead = found.table(), found.ahead(CHALLENGER).loc[BEST]
        text = DATA[studies[0]] if len(studies) == 1 else "**these together**"
        for name in (BEST, CHALLENGER, "logistic_1pct", "knn"):
            row, gain = table.loc[name], ""
            if name == CHALLENGER:
                gain = rho(*ahead[["ahead", "low", "high"]])
                if studies in (READ, AGAIN):
                    low, high = found.ahead(CHALLENGER, 99).loc[BEST, ["low", "high"]]
                    gain += f"; 99 %: {rho(low)} to {rho(high)}"
            rows.append([
                text, f"{found.runs}", NAMES[name].partition(":")[0],
                rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                f"{row['regret']:.1f}", gain,
            ])  # fmt: skip
    header = ["", "runs", "", "ρ with accuracy", "least method", "regret@1",
              "ahead of view retrieval by"]  # fmt: skip
    return markdown(header, rows)


POOL = {"pool": "0", "pool-0.125": "0.125", "pool-0.25": "0.25", "pool-0.5": "0.5", "pool-1": "1"}
SHOWN = (BEST, CHALLENGER, "view_retrieval_top1@backbone", "info_nce_whitened@backbone",
         "arc@backbone", "rotation_probe@backbone", "rankme@backbone",
         "lidar@backbone")  # fmt: skip


def pool_table() -> str:
    """Means over seeds of what scores say of each network, at the rate that all were run with."""
    rows = []
    for name, strength in POOL.items():
        runs = with_challenger(final(kept(name)), "pool")
        for method, part in runs[runs["base_lr"] == 0.12].groupby("method", sort=False):
            text = {"supervised": "cross-entropy", "supcon": "SupCon"}.get(method, "SimCLR")
            if strength != "0":
                text += f", watermark {strength}"
            cells = [f"{numbers(part, score).mean():.3g}" for score in SHOWN]
            labelled = [points(part[name].mean(), sign=False) for name in ("accuracy", "knn")]
            rows.append([text, *labelled, *cells])
    heads = [NAMES[score].partition(":")[0] for score in SHOWN]
    return markdown(["", "accuracy, %", "kNN, all labels, %", *heads], rows)
