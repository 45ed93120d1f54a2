"""The figure of the README and of docs/FINDINGS.md, as SVG: heads on the left, scores right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import pandas as pd

from radial.study.analysis import paired_heads

NAMES = {"simclr": "SimCLR", "moco": "MoCo v2", "byol": "BYOL", "swav": "SwAV",
         "simsiam": "SimSiam", "pooled": "all methods"}  # fmt: skip
OTHERS = {
    "view_retrieval@backbone": "view retrieval",
    "lidar@projector": "LiDAR, projector",
    "lidar@backbone": "LiDAR, backbone",
    "rankme@projector": "RankMe, projector",
    "rankme@backbone": "RankMe, backbone",
    "sns_paper@kernels": "SNS as published",
    "sns_width@kernels": "SNS with widths",
    "train_loss": "training loss",
    "knn_1pct": "kNN, 1 % of the labels",
}
WIDTH, ROW, TOP = 920, 30, 74
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #3d4451; }
.title { font-weight: 600; font-size: 15px; fill: #1d222b; }
.note { font-size: 12px; fill: #7a8494; }
.ours { fill: #2f7fd0; stroke: #2f7fd0; } .other { fill: #8b94a3; stroke: #8b94a3; }
.bad { fill: #d9482b; stroke: #d9482b; } .label { fill: #e08a2c; stroke: #e08a2c; }
.strong { font-weight: 600; } .axis { stroke: #c9ced6; } .zero { stroke: #7a8494; }
@media (prefers-color-scheme: dark) {
  text { fill: #c3cad5; } .title { fill: #eef1f5; } .note { fill: #8b94a3; }
  .axis { stroke: #3b424e; }
}
"""


@dataclass(frozen=True)
class Line:
    name: str
    value: float
    low: float
    high: float
    kind: str  # ours, other, bad or label
    strong: bool = False


def draw(heads: pd.DataFrame, judged: pd.DataFrame, chosen: str) -> str:
    """``judged``: scores on the methods that confirm; ``chosen`` is the kernel score chosen."""
    lines = _scores(judged, chosen)
    height = TOP + ROW * max(len(lines), 6) + 54
    left = _panel(
        _heads(heads), 20, 420, 100, "Does a live RBFN head match the MLP head?",
        "accuracy of rbfn minus LightlySSL's head, points", "{:+.0f}",
    )  # fmt: skip
    right = _panel(
        lines, 470, 430, 165, "Which label-free score ranks runs?",
        "Spearman ρ with accuracy within methods it was not chosen on", "{:+.1f}",
        limits=(-1.0, 1.0),
    )  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Left: difference in accuracy between heads; right: rank correlation of '
        f'label-free scores with accuracy; 95 % intervals">\n<style>{STYLE}</style>\n'
        f"{left}{right}</svg>\n"
    )


def _heads(runs: pd.DataFrame) -> list[Line]:
    table = paired_heads(runs, "default", "rbfn").set_index("method")
    rows = {name: table.loc[name] for name in NAMES if name in table.index}
    return [
        Line(NAMES[name], *(100 * row[key] for key in ("difference", "low", "high")), "ours",
             strong=name == "pooled")
        for name, row in rows.items()
    ]  # fmt: skip


def _scores(confirming: pd.DataFrame, chosen: str) -> list[Line]:
    names = {chosen: chosen.partition("@")[0].replace("_", " ")} | OTHERS

    def kind(name: str) -> str:
        if name == chosen or name.startswith("view_retrieval"):
            return "ours"
        return "bad" if name.startswith("sns") else "label" if name == "knn_1pct" else "other"

    found = [(name, confirming.loc[name]) for name in names if name in confirming.index]
    return [
        Line(names[name], *(float(row[key]) for key in ("spearman", "low", "high")), kind(name),
             strong=name == chosen)
        for name, row in found
        if pd.notna(row["spearman"])
    ]  # fmt: skip


def _panel(
    lines: Sequence[Line], x: int, width: int, names: int, title: str, note: str, form: str,
    limits: tuple[float, float] | None = None,
) -> str:  # fmt: skip
    ends = [end for line in lines for end in (line.low, line.high, line.value)]
    low, high = limits or (min(-1.0, *ends), max(1.0, *ends))
    start, room = x + names, width - names - 16

    def at(value: float) -> float:
        return start + room * (min(max(value, low), high) - low) / (high - low)

    bottom = TOP + ROW * len(lines)
    parts = [f'<text class="title" x="{x}" y="26">{escape(title)}</text>',
             f'<text class="note" x="{x}" y="46">{escape(note)}</text>']  # fmt: skip
    step = 0.5 if high - low <= 2 else max(1.0, round((high - low) / 6))
    tick = step * -int(-low // step)
    while tick <= high + 1e-9:
        kind = "zero" if abs(tick) < 1e-9 else "axis"
        label = form.format(tick).replace("-", "−") if kind == "axis" else "0"
        parts.append(f'<line class="{kind}" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{TOP - 12}"'
                     f' y2="{bottom}"/><text class="note" x="{at(tick):.1f}" y="{bottom + 18}" '
                     f'text-anchor="middle">{label}</text>')  # fmt: skip
        tick += step
    for i, line in enumerate(lines):
        y = TOP + ROW * i + 6
        strong = " strong" if line.strong else ""
        radius = 6.5 if line.strong else 5
        parts.append(
            f'<text class="{strong.strip()}" x="{start - 12}" y="{y + 4}" text-anchor="end">'
            f'{escape(line.name)}</text><g class="{line.kind}"><line x1="{at(line.low):.1f}" '
            f'x2="{at(line.high):.1f}" y1="{y}" y2="{y}" stroke-width="{3 if line.strong else 2}" '
            f'stroke-linecap="round"/><circle cx="{at(line.value):.1f}" cy="{y}" r="{radius}"/></g>'
        )
    return "\n".join(parts) + "\n"
