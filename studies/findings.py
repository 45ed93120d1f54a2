"""The tables and the figure of docs/FINDINGS.md, from the results kept in docs/findings.

    python studies/findings.py            # writes the tables between their markers, the figure,
                                          # and what `radial score` says was confirmed
    python studies/findings.py --check    # changes nothing; exit code 1 if something would change

A study's results come into docs/findings with

    python studies/findings.py --keep STUDY_DIRECTORY [--as NAME]

The statistics are those of REGISTERED.md, in evidence.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import tuning
from candidates import judge
from confirmed import facts
from evidence import RESAMPLES, Evidence, spearman
from figure import draw

from radial.files import write_atomically
from radial.study.analysis import paired_heads, stopping_summary, stopping_table
from radial.study.analysis.columns import BASELINES, final, numbers, oriented, with_clid
from radial.study.analysis.peaks import t_interval
from radial.study.audit import audit
from radial.study.report.write import write_table
from radial.study.results import directions, read_runs

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "findings"
FACTS = DOCS.parent / "src" / "radial" / "scoring" / "confirmed.json"
METHODS = {
    "simclr": "SimCLR", "moco": "MoCo v2", "nnclr": "NNCLR", "byol": "BYOL", "simsiam": "SimSiam",
    "swav": "SwAV", "dino": "DINO", "barlow_twins": "Barlow Twins", "vicreg": "VICReg",
}  # fmt: skip
HEADS = ("default", "mlp", "linear", "rbfn", "rbfn-normalized", "rbfn-paper")
CHOOSING = ("simclr", "byol")  # of study `scores`: what a score was chosen on
DATA = {
    "scores": "CIFAR-10 16 px",
    "second": "Tiny-ImageNet 32 px",
    "second64": "Tiny-ImageNet 64 px",
    "long": "CIFAR-10 32 px",
    "vit": "CIFAR-10 32 px, ViT",
}
QUOTED = ("scores",)  # what is complete; REGISTERED.md: then long, second, second64, vit
GROWING = ("second", "long")  # shown, not yet quoted: fewer configurations than registered
BUDGETS = (1, 3, 10, 20)  # epochs at which `long` is judged
EARLY, LATE = 3, 20
BEST = "view_retrieval@backbone"
LABELS = {"knn_1pct": "kNN, 1 % of labels", "logistic_1pct": "logistic regression, 1 %",
          "logistic_10pct": "logistic regression, 10 %", "knn": "kNN, all labels"}  # fmt: skip
NAMES = {
    BEST: "**view retrieval**: whitened, log rank",
    "view_retrieval_top1@backbone": "whitened, top-1",
    "view_retrieval_plain@backbone": "plain, log rank",
    "acr@backbone": "plain, top-1: 1 − ACR",
    "info_nce_whitened@backbone": "InfoNCE, whitened",
    "info_nce@backbone": "InfoNCE",
    "arc@backbone": "ARC",
    "garc_mean@backbone": "GARC",
    "rotation_probe@backbone": "rotation probe",
    "clid@backbone": "CLID",
    "kmeans_agreement@backbone": "agreement of k-means",
    "alignment@backbone": "alignment",
    "uniformity@backbone": "uniformity",
    "rankme@projector": "RankMe, projector",
    "rankme@backbone": "RankMe, backbone",
    "lidar@projector": "LiDAR, projector",
    "lidar@backbone": "LiDAR, backbone",
    "train_loss": "training loss",
    **LABELS,
}


@cache
def kept(name: str) -> pd.DataFrame:
    return pd.read_parquet(KEPT / name / "results.parquet")


def there(name: str) -> bool:
    return (KEPT / name / "results.parquet").is_file()


def keep(directory: Path, name: str) -> None:
    """The results of a study, a row a run; rows that are kept already and not in it stay."""
    if not (directory / "study.yaml").is_file():  # a table, as tuning.py leaves it
        table = (directory / "results.parquet").read_bytes()
        write_atomically(KEPT / name / "results.parquet", table)
        return
    runs = read_runs(directory).copy()  # in one block
    runs["data"] = runs["data"].str.replace(r"^folder:.*/", "folder:", regex=True)  # no paths
    if there(name):
        before = kept(name)
        stem = before["run"].astype(str).str.partition("@")[0]
        runs = pd.concat([runs, before[~stem.isin(runs["run"])]], ignore_index=True)
    write_table(runs, KEPT / name / "results")
    (KEPT / name / "results.csv").unlink()


def points(value: float, *, sign: bool = True) -> str:
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return text.replace("-", "−")


def span(low: float, high: float) -> str:
    return f"{points(low)} to {points(high)}"


def rho(value: float, low: float | None = None, high: float | None = None) -> str:
    text = f"{value:+.2f}" if low is None else f"{value:+.2f} ({low:+.2f} to {high:+.2f})"
    return "–" if "nan" in text else text.replace("-", "−")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ------------------------------------------------------------------ which run


def readings(name: str, label: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a study with its scores oriented, and which of them (nearly) every run has."""
    runs = kept(name)
    runs = runs[runs["accuracy"].notna()]
    stem = runs["run"].astype(str).str.partition("@")[0]
    cells = runs["method"] + " " + runs["epoch"].astype(int).astype(str)
    runs, better = with_clid(runs.assign(data=cells), directions(runs))  # CLID's pool is a cell
    better |= {k: way for k, way in BASELINES.items() if k != "steps"} | {"knn": "higher"}
    better = {k: way for k, way in better.items() if way != "none"}
    values = {k: oriented(numbers(runs, k), way) for k, way in better.items()}
    frame = pd.DataFrame(values, index=runs.index)
    frame = frame.loc[:, frame.notna().mean() > 0.95]
    known = runs[["method", "head", "accuracy", "epoch", "verdict"]].assign(run=stem, data=label)
    return pd.concat([known, frame], axis=1), list(frame.columns)


@cache
def confirming(*studies: str) -> Evidence:
    """The cells of these studies, on which nothing was chosen."""
    parts, names = [], None
    for name in (name for name in studies if there(name)):
        runs, found = readings(name, DATA[name])
        if name == "scores":
            runs = runs[~runs["method"].isin(CHOOSING)]
        if name == "long":
            runs = runs[runs["epoch"].isin(BUDGETS)]
        parts.append(runs)
        names = found if names is None else [n for n in names if n in found]
    return Evidence(pd.concat(parts, ignore_index=True), names or [], labelled=list(LABELS))


def ranking_table(found: Evidence, names: Mapping[str, str], best: str = BEST) -> str:
    """ρ, the least method, the better half, regret, and how far view retrieval is ahead."""
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
            rho(row["top_half"]), f"{row['regret']:.1f}", p, behind,
        ])  # fmt: skip
    header = ["", "ρ with accuracy", "least method", "better half", "regret@1", "p (Holm)",
              "view retrieval is ahead by"]  # fmt: skip
    return markdown(header, rows)


def datasets_table(*studies: str) -> str:
    """The main scores on each study alone."""
    rows = []
    for name in (name for name in studies if there(name)):
        found = confirming(name)
        table = found.table()
        for score in (BEST, "arc@backbone", "rankme@backbone", "logistic_1pct", "knn"):
            row = table.loc[score]
            low, high = f"{row['regret_low']:.1f}", f"{row['regret_high']:.1f}"
            rows.append([DATA[name], str(found.runs), NAMES[score].partition(":")[0],
                         rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                         f"{row['regret']:.1f} ({low} to {high})"])  # fmt: skip
    return markdown(["", "runs", "", "ρ with accuracy", "least method", "regret@1"], rows)


def methods_table(found: Evidence) -> str:
    """View retrieval's ρ in every cell."""
    place = found.names.index(BEST)
    values = {
        (cell.method, cell.data, cell.budget): spearman(cell.scores[:, place], cell.accuracy)
        for cell in found.cells
    }
    columns = list(dict.fromkeys((cell.data, cell.budget) for cell in found.cells))
    header = ["", *(f"{data}, epoch {float(budget):.0f}" for data, budget in columns)]
    rows = []
    for method, text in METHODS.items():
        cells = [values.get((method, *column)) for column in columns]
        if any(value is not None for value in cells):
            rows.append([text, *("" if v is None else rho(v) for v in cells)])
    return markdown(header, rows)


# ---------------------------------------------------------------- which epoch


def methodwise(values: pd.Series, methods: pd.Series, seed: int = 0) -> tuple[float, float]:
    """95 % of a mean, methods drawn with replacement, then runs within them."""
    random = np.random.default_rng(seed)
    groups = [values[methods == m].to_numpy() for m in methods.unique()]
    drawn = random.integers(0, len(groups), (RESAMPLES, len(groups)))
    means = np.array([
        [g[random.integers(0, len(g), len(g))].mean() for g in (groups[i] for i in row)]
        for row in drawn
    ])  # fmt: skip
    low, high = np.percentile(means.mean(1), [2.5, 97.5])
    return float(low), float(high)


def epochs_table() -> str:
    """What is lost by keeping one of a run's checkpoints, by rule."""
    runs, names = readings("long", DATA["long"])
    runs = runs.sort_values("epoch")
    count = runs.drop_duplicates("run").groupby("method").size()
    runs = runs[runs["method"].map(count) >= 4]  # as in all tables
    groups = [group for _, group in runs.groupby("run") if len(group) > 3]
    methods = pd.Series([group["method"].iloc[0] for group in groups])
    best = np.array([group["accuracy"].max() for group in groups])

    def by(column: str) -> np.ndarray:
        return np.array([g["accuracy"].iloc[np.nanargmax(g[column])] for g in groups])

    rules = {"the last epoch": np.array([g["accuracy"].iloc[-1] for g in groups])}
    rules["the best **view retrieval**"] = by(BEST)
    for name, text in (("rankme@backbone", "the highest RankMe, backbone"),
                       ("lidar@backbone", "the highest LiDAR, backbone"),
                       ("info_nce_whitened@backbone", "the best InfoNCE, whitened"),
                       ("rotation_probe@backbone", "the best rotation probe"),
                       ("train_loss", "the lowest training loss"),
                       ("logistic_1pct", "logistic regression, 1 % of labels"),
                       ("logistic_10pct", "logistic regression, 10 %")):  # fmt: skip
        if name in names:
            rules[text] = by(name)
    rules["a random one"] = np.array([g["accuracy"].mean() for g in groups])
    rows = []
    for text, accuracy in rules.items():
        lost = pd.Series(100 * (best - accuracy))
        low, high = methodwise(lost, methods)
        mean = lost.groupby(methods).mean().mean()
        rows.append([text, f"{mean:.2f} ({low:.2f} to {high:.2f})", f"{lost.max():.1f}"])
    return markdown(["what is kept of a run", "points lost", "most"], rows)


def early_table() -> str:
    """Scores after few epochs against accuracy at the end, within methods."""
    runs, names = readings("long", DATA["long"])
    end = runs[runs["epoch"] == LATE].set_index("run")["accuracy"]
    rows = []
    for epoch in (e for e in BUDGETS if e < LATE):
        part = runs[(runs["epoch"] == epoch) & runs["run"].isin(end.index)]
        part = part.assign(then=part["accuracy"], accuracy=part["run"].map(end))
        shown = [n for n in (BEST, "train_loss", "rankme@backbone", "logistic_1pct", "then")
                 if n in [*names, "then"]]  # fmt: skip
        table = Evidence(part, shown).table()
        for name in shown:
            row = table.loc[name]
            text = NAMES.get(name, "accuracy at that time")
            rows.append([f"{epoch}", text, rho(row["rho"], row["low"], row["high"]),
                         f"{row['regret']:.1f}"])  # fmt: skip
    header = ["after epoch", "by", f"ρ with accuracy after {LATE}", "regret@1"]
    return markdown(header, rows)


def stopping_rules() -> str:
    """What is lost by keeping the best epoch by view retrieval, and by stopping by it."""
    table = stopping_table(kept("stopping"), BEST, patience=3)
    methods = kept("stopping").drop_duplicates("run").set_index("run")["method"]
    names = {"last": "the last epoch", "kept": "the epoch of the best view retrieval",
             "stopped": "the same, stopped when it has not risen for three"}  # fmt: skip
    rows = []
    for _, row in stopping_summary(table).iterrows():
        lost, of = 100 * table[f"{row['rule']}_regret"], table["run"].map(methods)
        low, high = methodwise(lost, of)
        saved = f"{100 * row['saved']:.0f} %"
        mean = lost.groupby(of).mean().mean()
        rows.append([names[row["rule"]], f"{mean:.2f} ({low:.2f} to {high:.2f})",
                     f"{lost.max():.1f}", saved])  # fmt: skip
    return markdown(["what is kept of a run", "points lost", "most", "epochs saved"], rows)


# ------------------------------------------------------------- which challenger


def challenger_table() -> str:
    """The challenger beside view retrieval, on the runs of `second` it was read on."""
    runs, _ = readings("second", DATA["second"])
    found = pd.read_parquet(KEPT / "candidates" / "second.parquet").set_index("run")
    recipes = [f"{name}: whitened log rank" for name in ("fixed", "crop", "strong")]
    runs = runs[runs["run"].isin(found.index)]
    runs = runs.assign(challenger=runs["run"].map(found[recipes].mean(axis=1)))
    names = {BEST: NAMES[BEST], "challenger": "mean of fixed, crop, strong"}
    found = Evidence(runs, list(names))
    if not found.cells:
        return "Read on fewer than four runs of every method so far."
    methods = ", ".join(METHODS[m] for m in dict.fromkeys(cell.method for cell in found.cells))
    return f"{found.runs} runs of {methods}:\n\n{ranking_table(found, names)}"


# ------------------------------------------------------------------ which pool


POOL = {"pool": "0", "pool-0.125": "0.125", "pool-0.25": "0.25", "pool-0.5": "0.5", "pool-1": "1"}
SHOWN = (BEST, "view_retrieval_top1@backbone", "info_nce_whitened@backbone", "arc@backbone",
         "rotation_probe@backbone", "rankme@backbone", "lidar@backbone")  # fmt: skip


def pool_table() -> str:
    """Means over seeds and rates of what every score says of each kind of network."""
    rows = []
    for name, strength in POOL.items():
        if there(name):
            runs = final(kept(name))
            for method, part in runs.groupby("method", sort=False):
                text = {"supervised": "cross-entropy", "supcon": "SupCon"}.get(method, "SimCLR")
                if strength != "0":
                    text += f", watermark {strength}"
                cells = [f"{numbers(part, score).mean():.3g}" for score in SHOWN]
                rows.append([text, points(part["accuracy"].mean(), sign=False), *cells])
    heads = [NAMES[score].partition(":")[0] for score in SHOWN]
    return markdown(["", "accuracy, %", *heads], rows)


def outliers_table() -> str:
    """Areas under the curve and agreements, a column a seed."""
    runs = kept("outliers").set_index("run")
    rows = [[name, *(f"{value:.3f}" for value in runs[name])] for name in runs.columns]
    return markdown(["", *(f"seed {run}" for run in runs.index)], rows)


# ---------------------------------------------------------------- which head


def heads_table(runs: pd.DataFrame) -> str:
    """Mean accuracy in percent with Student's 95 % interval over seeds."""

    def cell(method: str, head: str) -> str:
        found = runs[(runs["method"] == method) & (runs["head"] == head)]["accuracy"].to_numpy()
        low, high = t_interval(found, 1 / float(runs["test_samples"].min()))
        return f"{points(found.mean(), sign=False)} ± {50 * (high - low):.1f}"

    methods = [m for m in METHODS if m in set(runs["method"])]
    rows = [[METHODS[m], *(cell(m, head) for head in HEADS)] for m in methods]
    return markdown(["", *(f"`{head}`" for head in HEADS)], rows)


def pairs_table(runs: pd.DataFrame) -> str:
    """Every head minus the default head: by method, pairs alike, and methods as clusters."""
    tables = {head: paired_heads(runs, "default", head).set_index("method") for head in HEADS[1:]}
    rows = []
    for method in [*(m for m in METHODS if m in set(runs["method"])), "pooled"]:
        cells = [tables[head].loc[method] for head in HEADS[1:]]
        texts = [f"{points(c['difference'])} ({span(c['low'], c['high'])})" for c in cells]
        rows.append(["pairs alike" if method == "pooled" else METHODS[method], *texts])
    wide = runs.pivot_table(index=["method", "seed"], columns="head", values="accuracy")
    texts = []
    for head in HEADS[1:]:
        gain = (wide[head] - wide["default"]).reset_index()
        low, high = methodwise(gain[0], gain["method"])
        texts.append(f"**{points(gain[0].mean())}** ({span(low, high)})")
    rows.append(["**methods as clusters**", *texts])
    return markdown(["", *(f"`{head}`" for head in HEADS[1:])], rows)


def learns_table() -> str:
    """Do the new methods learn: accuracy beside the untrained backbone's."""
    rows = []
    for name, network in (("learns", "ResNet-9"), ("learns-vit", "ViT-nano")):
        if there(name):
            runs = final(kept(name))
            for method in (m for m in METHODS if m in set(runs["method"])):
                part = runs[runs["method"] == method].set_index("head")
                cells = [points(part["accuracy"].get(h, np.nan), sign=False)
                         for h in ("default", "rbfn")]  # fmt: skip
                start = points(part["start_accuracy"].iloc[0], sign=False)
                rows.append([network, METHODS[method], start, *cells])
    return markdown(["", "", "untrained", "`default`", "`rbfn`"], rows)


def published_table(runs: pd.DataFrame) -> str:
    """Pooled correlations of the SNS forms with accuracy, with and without unlearned runs."""
    table = audit(final(runs), directions(runs)).correlations.set_index("score")
    rows = []
    for name in ("sns_paper@kernels", "sns_width@kernels"):
        one = table.loc[name]
        figures = [rho(one[f"{kind}_{part}"])
                   for kind in ("pearson", "spearman") for part in ("all", "left")]  # fmt: skip
        rows.append([f"`{name}`", *figures, f"{one['n_all']:.0f}", f"{one['n_left']:.0f}"])
    header = ["score", "Pearson, all", "Pearson, learned", "Spearman, all", "Spearman, learned",
              "runs", "learned"]  # fmt: skip
    return markdown(header, rows)


# ------------------------------------------------------------------- the page


def tables() -> dict[str, str]:
    found, growing, heads = confirming(*QUOTED), confirming(*GROWING), kept("heads")
    every = {n: f"`{n}`" for n in found.table()["rho"].sort_values(ascending=False).index}
    more = {  # studies that are on their way
        "stopping": stopping_rules,
        "tuning": lambda: tuning.summary(kept("tuning")).strip(),
        "pool": pool_table,
        "outliers": outliers_table,
    }
    made = {name: write() for name, write in more.items() if there(name)}
    if (KEPT / "candidates" / "second.parquet").is_file():
        made["challenger"] = challenger_table()
    return made | {
        "ranking": ranking_table(found, NAMES),
        "candidates": candidates_table(),
        "growing": ranking_table(growing, NAMES),
        "datasets": datasets_table(*GROWING),
        "methods": methods_table(growing),
        "epochs": epochs_table(),
        "early": early_table(),
        "heads": heads_table(heads),
        "pairs": pairs_table(heads),
        "learns": learns_table(),
        "published": published_table(kept("published")),
        "every": ranking_table(found, every),
    }


def candidates_table(most: int = 8) -> str:
    """The best candidates on the hundred runs of `scores`, view retrieval among them."""
    table = judge(KEPT / "candidates" / "scores.parquet", KEPT / "scores" / "results.parquet", [])
    rows = [
        [row["candidate"], rho(row["rho"]), rho(row["least"]), rho(row["top half"]),
         f"{row['regret']:.1f}", rho(row["colour"])]
        for _, row in table.head(most).iterrows()
    ]  # fmt: skip
    return markdown(["", "ρ", "least method", "better half", "regret@1", "worth of colour"], rows)


def filled(text: str, found: Mapping[str, str]) -> str:
    """``text`` with every table between its two markers."""
    for name, table in found.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"the page has no place for {name}: {begin} … {end}")
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text = pattern.sub(lambda _, t=table, b=begin, e=end: f"{b}\n\n{t}\n\n{e}", text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="take in a study's results")
    parser.add_argument("--as", dest="name", help="of what is taken in, if not the directory's")
    options = parser.parse_args()
    if options.keep is not None:
        keep(options.keep, options.name or options.keep.name)
        return 0
    page, found = DOCS / "FINDINGS.md", confirming(*QUOTED)
    studies = {name: kept(name) for name in (*QUOTED, "heads", "published", "tune")}
    made = {
        page: filled(page.read_text(encoding="utf-8"), tables()),
        DOCS / "findings.svg": draw(kept("heads"), found.table(), NAMES, LABELS),
        FACTS: facts(found, studies, CHOOSING),
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
