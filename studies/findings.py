"""The pages, tables and figure of the findings, and what `radial score` says was confirmed.

    python studies/findings.py            # writes them: the tables between their markers
    python studies/findings.py --check    # changes nothing; exit code 1 if something would change

A study's results come into docs/findings with

    python studies/findings.py --keep STUDY_DIRECTORY [--as NAME]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import tuning
import which_epoch
import which_head
import which_run
from confirmed import facts
from figure import Line, Panel, draw
from frames import (
    AGAIN,
    ARMS,
    BEST,
    CHALLENGER,
    CHOOSING,
    CONFIRMING,
    DOCS,
    FIRST,
    FIRST_ARMS,
    KEPT,
    LABELS,
    METHODS,
    NAMES,
    READ,
    challenged,
    confirming,
    kept,
    there,
    with_challenger,
)

from radial.files import write_atomically
from radial.study.analysis import paired_heads
from radial.study.report.write import write_table
from radial.study.results import read_runs

PAGES = (DOCS / "FINDINGS.md", DOCS / "FINDINGS-TABLES.md")
FACTS = DOCS.parent / "src" / "radial" / "scoring" / "confirmed.json"
DRAWN = (BEST, "info_nce_whitened@backbone", "garc_mean@backbone", "arc@backbone",
         "rotation_probe@backbone", "clid@backbone", "rankme@backbone", "lidar@projector",
         "train_loss", "logistic_1pct", "knn")  # fmt: skip
RIVALS = (CHALLENGER, BEST, "view_retrieval_top1@backbone", "arc@backbone",
          "info_nce@backbone", "info_nce_whitened@backbone", "rotation_probe@backbone",
          "clid@backbone", "rankme@backbone", "lidar@projector", "train_loss", "logistic_1pct",
          "logistic_10pct", "knn")  # fmt: skip
SQUARE = (BEST, "view_retrieval_top1@backbone", "view_retrieval_plain@backbone",
          "info_nce_whitened@backbone", "arc@backbone", "logistic_1pct", "knn")  # fmt: skip


def named(scores: Sequence[str]) -> dict[str, str]:
    return {name: NAMES[name] for name in scores}


def keep(directory: Path, name: str) -> None:
    """The results of a study, a row a run; rows that are kept already and not in it stay."""
    if not (directory / "study.yaml").is_file():  # a table, as tuning.py leaves it
        rows = pd.read_parquet(directory / "results.parquet")
        keys = [key for key in ("run", "method", "repeat", "by") if key in rows]
        if there(name):
            rows = pd.concat([kept(name), rows]).drop_duplicates(keys, keep="last")
        write_atomically(KEPT / name / "results.parquet", rows.to_parquet(index=False))
        return
    runs = read_runs(directory).copy()  # in one block
    runs["data"] = runs["data"].str.replace(r"^folder:.*/", "folder:", regex=True)  # no paths
    if there(name):
        before = kept(name)
        stem = before["run"].astype(str).str.partition("@")[0]
        runs = pd.concat([runs, before[~stem.isin(runs["run"])]], ignore_index=True)
    write_table(runs, KEPT / name / "results")
    (KEPT / name / "results.csv").unlink()


def all_tables() -> dict[str, str]:
    found, first, arms = confirming(*CONFIRMING), confirming(FIRST), kept("arms")
    every, kernel = (
        {n: f"`{n}`" for n in evidence.table()["rho"].sort_values(ascending=False).index}
        for evidence in (found, first)
    )
    against = [(head, "default") for head in ARMS[1:]]
    kernels = [("rbfn", head) for head in ARMS[1:] if head != "rbfn"]
    return {
        "goals": which_run.goals_table(),
        "ranking": which_run.ranking_table(found, named(RIVALS[1:])),
        "datasets": which_run.datasets_table(FIRST, *CONFIRMING),
        "counted": which_run.counted_table(),
        "settings": which_run.settings_table(),
        "exclusions": which_run.exclusions_table(FIRST, *CONFIRMING),
        "methods": which_run.methods_table(found),
        "budgets": which_epoch.budgets_table(),
        "first": which_run.ranking_table(first, named(SQUARE)),
        "candidates": which_run.candidates_table(),
        "challengers": which_run.challengers_table(),
        "challenger": which_run.ranking_table(
            challenged(*READ), named(RIVALS), CHALLENGER
        ),
        "along": which_epoch.along_table(),
        "epochs": which_epoch.epochs_table(),
        "stopping": which_epoch.stopping_rules(),
        "early": which_epoch.early_table(),
        "drawn": which_epoch.drawn_table(),
        "tuning": tuning.summary(kept("tuning")).strip(),
        "searched": which_epoch.searched_table(),
        "arms": which_head.heads_table(arms, ARMS),
        "gains": which_head.gains_table(arms, [*against, *kernels]),
        "pairs": which_head.pairs_table(arms, against),
        "kernels": which_head.pairs_table(arms, kernels),
        "rates": which_head.rates_table(),
        "heads": which_head.heads_table(kept("heads"), FIRST_ARMS),
        "learns": which_head.learns_table(),
        "pool": which_run.pool_table(),
        "published": which_head.published_table(kept("published")),
        "outliers": which_head.outliers_table(),
        "every": which_run.ranking_table(found, every),
        "kernel-scores": which_run.ranking_table(
            first, {n: text for n, text in kernel.items() if n.endswith("@kernels") or n == "knn"}
        ),
    }  # fmt: skip


def kind(name: str) -> str:
    return "ours" if name == BEST else "label" if name in LABELS else "other"


def short(name: str) -> str:
    fewer = {"logistic_1pct": "1 % of the labels", "knn": "all labels, kNN"}
    return fewer.get(name, NAMES[name].partition(":")[0].strip("*"))


def panels() -> list[Panel]:
    """Which run, on what else, which epoch and settings, which head: a panel each."""
    found = confirming(*CONFIRMING)
    scores = found.table()
    runs = [Line(short(n), *scores.loc[n, ["rho", "low", "high"]], kind(n))
            for n in DRAWN if n in scores.index]  # fmt: skip
    others = []
    for study, text in ((FIRST, "16 px"), ("second", "Tiny-ImageNet"),
                        ("again", "Tiny-ImageNet again"), ("second64", "at 64 px"),
                        ("long", "longer"), ("vit", "ViT")):  # fmt: skip
        table = confirming(study).table()
        for n in (BEST, "arc@backbone", "logistic_1pct"):
            figures = table.loc[n, ["rho", "low", "high"]]
            others.append(Line(f"{text}: {short(n)}", *figures, kind(n)))
    rules = which_epoch.epoch_rules()
    decisions = [Line(f"epoch: {shown}", *rules[text][:3], way) for text, shown, way in (
        ("the best **view retrieval**", "view retrieval", "ours"),
        ("the last epoch", "the last", "other"),
        ("logistic regression, 1 % of labels", "1 % of the labels", "label"),
        ("a random one", "a random one", "other"))]  # fmt: skip
    wide = kept("tuning").pivot(index=["method", "repeat"], columns="by", values="accuracy") * 100
    for by, text, way in (("label-free", "settings: radial tune", "ours"),
                          ("labelled-10", "settings: 10 % of the labels", "label"),
                          ("labelled-1", "settings: 1 % of the labels", "label"),
                          ("default", "settings: defaults", "other"),
                          ("random", "settings: random", "other")):  # fmt: skip
        lost = (wide["labelled"] - wide[by]).reset_index(name="points")
        ends = which_epoch.methodwise(lost["points"], lost["method"])
        decisions.append(Line(text, float(lost["points"].mean()), *ends, way))
    gains = paired_heads(kept("arms"), "default", "rbfn").set_index("method")
    heads = [Line(text, *(100 * gains.loc[m, c] for c in ("difference", "low", "high")), "other")
             for m, text in METHODS.items()]  # fmt: skip
    whole = which_head.clustered(kept("arms"), "rbfn", "default")
    heads.append(Line("all methods", *(100 * value for value in whole), "ours"))
    return [
        Panel("Which run?", f"Spearman ρ with accuracy within methods; {found.runs} runs",
              runs, "{:+.1f}", (-1.0, 1.0)),
        Panel("… in each of six studies?", "the same; 16 px: first edition, not counted left",
              others, "{:+.1f}", (-1.0, 1.0)),
        Panel("Which epoch, which settings?", "points of accuracy lost against the best epoch, "
              "against a labelled search", decisions, "{:+.0f}"),
        Panel("Which head?", "accuracy of rbfn minus LightlySSL's head, points", heads, "{:+.0f}"),
    ]  # fmt: skip


def filled(texts: Mapping[Path, str], found: Mapping[str, str]) -> dict[Path, str]:
    """The pages with every table between its two markers, which stand in one of them."""
    pages = dict(texts)
    for name, table in found.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        places = [path for path, text in pages.items() if pattern.search(text)]
        if len(places) != 1:
            raise ValueError(f"{name} has {len(places)} places, not one: {begin} … {end}")
        new = f"{begin}\n\n{table}\n\n{end}"
        pages[places[0]] = pattern.sub(lambda _, new=new: new, pages[places[0]])
    return pages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="take in a study's results")
    parser.add_argument("--as", dest="name", help="of what is taken in, if not the directory's")
    options = parser.parse_args()
    if options.keep is not None:
        keep(options.keep, options.name or options.keep.name)
        return 0
    found = confirming(*CONFIRMING)
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES}
    first = kept(FIRST)
    studies = {name: kept(name) for name in (*CONFIRMING, "heads", "published", "tune")}
    studies[FIRST] = first[~first["method"].isin(CHOOSING)]
    read = with_challenger(kept("second"), "second").dropna(subset=CHALLENGER)
    made = {
        **filled(pages, all_tables()),
        DOCS / "findings.svg": draw(panels()),
        FACTS: facts(found, (confirming(FIRST), challenged(*READ, *AGAIN)), studies, read),
    }
    stale = [
        path
        for path, text in made.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{'differs' if options.check else 'written'}: {path}")
        if not options.check:
            write_atomically(path, made[path])
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
