"""Tables of heads, their rates, and what is learned at all."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from frames import ARMS, METHODS, kept, markdown, points, rho, span
from rates import best
from which_epoch import methodwise

from radial.study.analysis import paired_heads
from radial.study.analysis.columns import final
from radial.study.analysis.peaks import t_interval
from radial.study.audit import audit
from radial.study.results import directions


def heads_table(runs: pd.DataFrame, heads: Sequence[str]) -> str:
    """Mean accuracy in percent with Student's 95 % interval over seeds."""

    def cell(method: str, head: str) -> str:
        found = runs[(runs["method"] == method) & (runs["head"] == head)]["accuracy"].to_numpy()
        low, high = t_interval(found, 1 / float(runs["test_samples"].min()))
        return f"{points(found.mean(), sign=False)} ± {50 * (high - low):.1f}"

    rows = [[text, *(cell(m, h) for h in heads)]
            for m, text in METHODS.items() if m in set(runs["method"])]  # fmt: skip
    return markdown(["", *(f"`{head}`" for head in heads)], rows)


def pairs_table(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> str:
    """One head minus another: by method, pairs alike, and methods as clusters."""
    tables = [paired_heads(runs, b, a).set_index("method") for a, b in pairs]
    rows = []
    for method, name in [*METHODS.items(), ("pooled", "pairs alike")]:
        if method in tables[0].index:
            cells = [table.loc[method] for table in tables]
            texts = [f"{points(c['difference'])} ({span(c['low'], c['high'])})" for c in cells]
            rows.append([name, *texts])
    texts = []
    for gain, low, high in (clustered(runs, a, b) for a, b in pairs):
        texts.append(f"**{points(gain)}** ({span(low, high)})")
    rows.append(["**methods as clusters**", *texts])
    return markdown(["", *(f"`{a}` − `{b}`" for a, b in pairs)], rows)


def gains_table(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> str:
    """One head minus another over all methods: as clusters, and for how many it is ahead."""
    rows = []
    for a, b in pairs:
        mean, low, high = clustered(runs, a, b)
        table = paired_heads(runs, b, a).set_index("method")
        alike, each = table.loc["pooled"], table["difference"].drop("pooled")
        rows.append([f"`{a}` − `{b}`", f"**{points(mean)}** ({span(low, high)})",
                     f"{points(alike['difference'])} ({span(alike['low'], alike['high'])})",
                     f"{(each > 0).sum()} of {len(each)}"])  # fmt: skip
    return markdown(["", "methods as clusters", "pairs alike", "ahead by the mean"], rows)


def clustered(runs: pd.DataFrame, head: str, other: str) -> tuple[float, float, float]:
    """Mean accuracy of one head minus another's, paired by method and seed; methods drawn."""
    wide = runs.pivot_table(index=["method", "seed"], columns="head", values="accuracy")
    gain = (wide[head] - wide[other]).dropna().reset_index()
    mean = float(gain[0].groupby(gain["method"]).mean().mean())
    return mean, *methodwise(gain[0], gain["method"])


def rates_table() -> str:
    """The rate that each head takes, and the grid of its method."""
    table = kept("rates")
    chosen = best(table).set_index(["method", "head"])["base_lr"]
    rows = []
    for method, text in METHODS.items():
        grid = sorted(table.loc[table["method"] == method, "base_lr"].unique())
        cells = [f"{chosen[method, head]:g}" for head in ARMS]
        rows.append([text, f"{grid[0]:g} to {grid[-1]:g}", *cells])
    return markdown(["", "grid, factors of 4", *(f"`{head}`" for head in ARMS)], rows)


def learns_table() -> str:
    """Do the new methods learn: accuracy beside the untrained backbone's."""
    rows = []
    for name, network in (("learns", "ResNet-9"), ("learns-vit", "ViT-nano")):
        runs = final(kept(name))
        for method in (m for m in METHODS if m in set(runs["method"])):
            part = runs[runs["method"] == method].set_index("head")
            cells = [points(part["accuracy"][h], sign=False) for h in ("default", "rbfn")]
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


def outliers_table() -> str:
    """Areas under the curve and agreements, a column a seed."""
    runs = kept("outliers").set_index("run")
    rows = [[name, *(f"{value:.3f}" for value in runs[name])] for name in runs.columns]
    return markdown(["", *(f"seed {run}" for run in runs.index)], rows)
