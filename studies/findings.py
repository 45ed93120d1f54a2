"""The tables and the figure of docs/FINDINGS.md, from the results kept in docs/findings.

    python studies/findings.py            # writes the tables between their markers, the figure,
                                          # and what `radial score` says was confirmed
    python studies/findings.py --check    # changes nothing; exit code 1 if something would change

A study's results come into docs/findings with

    python studies/findings.py --keep STUDY_DIRECTORY
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from confirmed import facts
from figure import draw

from radial.files import write_atomically
from radial.study.analysis import compare_scores, judge_scores, paired_heads, within
from radial.study.analysis.columns import final
from radial.study.analysis.peaks import t_interval
from radial.study.audit import audit
from radial.study.report import write_report
from radial.study.results import directions

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "findings"
FACTS = DOCS.parent / "src" / "radial" / "scoring" / "confirmed.json"
METHODS = {"simclr": "SimCLR", "moco": "MoCo v2", "byol": "BYOL", "swav": "SwAV",
           "simsiam": "SimSiam"}  # fmt: skip
HEADS = ("default", "mlp", "linear", "rbfn", "rbfn-normalized", "rbfn-paper")
CHOOSING = ("simclr", "byol")  # methods that a score is chosen on; the others confirm it
PEERS = ("rankme@projector", "rankme@backbone", "lidar@projector", "lidar@backbone")
BASELINES = ("train_loss", "knn_1pct")
BEST = "view_retrieval@backbone"  # no kernels needed


def kept(name: str) -> pd.DataFrame:
    return pd.read_parquet(KEPT / name / "results.parquet")


def points(value: float, *, sign: bool = True) -> str:
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return text.replace("-", "−")


def span(low: float, high: float) -> str:
    return f"{points(low)} to {points(high)}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def heads_table(runs: pd.DataFrame) -> str:
    """Mean accuracy in percent with Student's 95 % interval over seeds."""

    def cell(method: str, head: str) -> str:
        found = runs[(runs["method"] == method) & (runs["head"] == head)]["accuracy"].to_numpy()
        low, high = t_interval(found, 1 / float(runs["test_samples"].min()))
        return f"{points(found.mean(), sign=False)} ± {50 * (high - low):.1f}"

    rows = [[METHODS[m], *(cell(m, head) for head in HEADS)] for m in METHODS]
    return markdown(["", *(f"`{head}`" for head in HEADS)], rows)


def pairs_table(runs: pd.DataFrame) -> str:
    """Every head minus the default head, by method and pooled."""
    tables = {head: paired_heads(runs, "default", head).set_index("method") for head in HEADS[1:]}
    rows = []
    for method in [*METHODS, "pooled"]:
        cells = [tables[head].loc[method] for head in HEADS[1:]]
        texts = [f"{points(c['difference'])} ({span(c['low'], c['high'])})" for c in cells]
        name = "**all**" if method == "pooled" else METHODS[method]
        rows.append([name, *texts])
    return markdown(["", *(f"`{head}`" for head in HEADS[1:])], rows)


def halves(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    chosen = runs["method"].isin(CHOOSING)
    return {"choosing": runs[chosen], "confirming": runs[~chosen], "all": runs}


def judged(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The judgement of every score, by half of the methods; directions are the registry's."""
    better = directions(runs)
    return {
        name: judge_scores(part.reset_index(drop=True), better).set_index("score")
        for name, part in halves(final(runs)).items()
    }


def best_kernel_score(choosing: pd.DataFrame) -> str:
    """The one with the highest mean ρ on the methods that scores are chosen on."""
    kernels = [score for score in choosing.index if score.endswith("@kernels")]
    return str(choosing.loc[kernels, "spearman"].idxmax())


def scores_table(found: dict[str, pd.DataFrame], most: int = 10) -> str:
    """The chosen kernel score, the best on the choosing half, the peers and the baselines."""
    choosing = found["choosing"]
    ranked = choosing[choosing["kind"] == "score"].sort_values("spearman", ascending=False)
    chosen = best_kernel_score(choosing)
    names = [chosen, *ranked.index[:most], *(n for n in ranked.index if n.startswith("sns"))]
    names += [*PEERS, *BASELINES]
    rows = []
    for name in dict.fromkeys(names):
        row = [f"**`{name}`**" if name == chosen else f"`{name}`"]
        for half in ("choosing", "confirming"):
            entry = found[half].loc[name]
            row.append(f"{entry['spearman']:+.2f} ({entry['low']:+.2f} to {entry['high']:+.2f})")
            row.append(points(entry["regret1"], sign=False))
        entry = found["confirming"].loc[name]
        row.append(points(entry["regret3"], sign=False))
        row.append("–" if np.isnan(entry["p_holm"]) else f"{entry['p_holm']:.3f}")
        row.append(f"{entry['pooled_spearman']:+.2f}")
        row = ["–" if "nan" in cell else cell for cell in row]
        rows.append([text.replace("-", "−") if i else text for i, text in enumerate(row)])
    header = ["score", "ρ choosing", "regret@1", "ρ confirming", "regret@1", "regret@3", "p (Holm)",
              "pooled ρ"]  # fmt: skip
    return markdown(header, rows)


def methods_table(runs: pd.DataFrame, names: list[str]) -> str:
    table = within(final(runs), directions(runs)).set_index(["score", "method"])["spearman"]
    rows = [
        [f"`{name}`", *(f"{table[name, m]:+.2f}".replace("-", "−") for m in METHODS)]
        for name in names
    ]
    return markdown(["score", *METHODS.values()], rows)


def ahead_table(runs: pd.DataFrame, chosen: str) -> str:
    """The chosen score's ρ minus that of its peers, paired, on the methods that confirm."""
    part = halves(final(runs))["confirming"].reset_index(drop=True)
    table = compare_scores(part, directions(runs), [*PEERS, *BASELINES])
    rows = []
    for peer in (*PEERS, *BASELINES):
        one = table[(table["a"] == chosen) & (table["b"] == peer)].iloc[0]
        text = f"{one['difference']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"
        rows.append([f"`{peer}`", text.replace("-", "−")])
    return markdown([f"`{chosen}` minus", "ρ, confirming methods"], rows)


def published_table(runs: pd.DataFrame) -> str:
    """Pooled correlations of the SNS forms with accuracy, with and without unlearned runs."""
    found = audit(final(runs), directions(runs)).correlations
    table = found.set_index("score")
    names = [name for name in ("sns_paper@kernels", "sns_width@kernels", "sns_width_raw@kernels")
             if name in table.index]  # fmt: skip
    rows = []
    for name in names:
        one = table.loc[name]
        figures = [f"{one[f'{kind}_{part}']:+.2f}".replace("-", "−")
                   for kind in ("pearson", "spearman") for part in ("all", "left")]  # fmt: skip
        figures = ["–" if "nan" in figure else figure for figure in figures]
        rows.append([f"`{name}`", *figures, f"{one['n_all']:.0f}", f"{one['n_left']:.0f}"])
    header = ["score", "Pearson, all", "Pearson, learned", "Spearman, all", "Spearman, learned",
              "runs", "learned"]  # fmt: skip
    return markdown(header, rows)


def tables() -> dict[str, str]:
    found: dict[str, str] = {}
    heads, scores = kept("heads"), kept("scores")
    found["heads"], found["pairs"] = heads_table(heads), pairs_table(heads)
    judgement = judged(scores)
    chosen = best_kernel_score(judgement["choosing"])
    found["scores"] = scores_table(judgement)
    found["methods"] = methods_table(scores, [chosen, BEST, *PEERS, *BASELINES])
    found["ahead"] = ahead_table(scores, chosen)
    found["published"] = published_table(kept("published"))
    return found


def filled(text: str, found: dict[str, str]) -> str:
    """``text`` with every table between its two markers."""
    for name, table in found.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"the page has no place for {name}: {begin} … {end}")
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text = pattern.sub(lambda _, t=table, b=begin, e=end: f"{b}\n\n{t}\n\n{e}", text)
    return text


def keep(directory: Path) -> None:
    """Results and report pages of a study, small enough to be kept."""
    place = KEPT / directory.name
    with tempfile.TemporaryDirectory() as scratch:
        write_report(
            directory,
            html=place / "report.html",
            markdown=place / "report.md",
            tables=scratch,
            small=True,
        )
        shutil.copyfile(Path(scratch) / "runs.parquet", place / "results.parquet")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="take in a study's results")
    options = parser.parse_args()
    if options.keep is not None:
        keep(options.keep)
        return 0
    found = tables()
    page = DOCS / "FINDINGS.md"
    made = {page: filled(page.read_text(encoding="utf-8"), found)}
    judgement = judged(kept("scores"))
    chosen = best_kernel_score(judgement["choosing"])
    made[DOCS / "findings.svg"] = draw(kept("heads"), judgement["confirming"], chosen)
    runs = kept("scores")
    studies = {path.parent.name: pd.read_parquet(path) for path in KEPT.glob("*/results.parquet")}
    confirming = halves(final(runs))["confirming"]
    made[FACTS] = facts(judgement["confirming"], confirming, studies, directions(runs), CHOOSING)
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
