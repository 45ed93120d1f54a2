"""The figure of the README and of docs/FINDINGS.md, as SVG: scores on the left, heads right."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import pandas as pd

from radial.study.analysis import paired_heads

METHODS = {"simclr": "SimCLR", "moco": "MoCo v2", "byol": "BYOL", "swav": "SwAV",
           "simsiam": "SimSiam", "pooled": "all methods"}  # fmt: skip
SHOWN = ("view_retrieval@backbone", "info_nce_whitened@backbone", "garc_mean@backbone",
         "arc@backbone", "rotation_probe@backbone", "clid@backbone", "rankme@backbone",
         "lidar@projector", "train_loss", "logistic_1pct", "knn")  # fmt: skip
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


def draw(
    heads: pd.DataFrame, scores: pd.DataFrame, names: Mapping[str, str], labels: Container[str]
) -> str:
    """``scores``: the table of the confirming cells; ``labels`` are those that need labels."""
    lines = _scores(scores, names, labels)
    height = TOP + ROW * max(len(lines), 6) + 54
    left = _panel(
        lines, 20, 470, 185, "Which label-free score ranks runs?",
        "Spearman ρ with accuracy within methods, where nothing was chosen", "{:+.1f}",
        limits=(-1.0, 1.0),
    )  # fmt: skip
    right = _panel(
        _heads(heads), 520, 380, 100, "Does a live RBFN head match the MLP head?",
        "accuracy of rbfn minus LightlySSL's head, points", "{:+.0f}",
    )  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Left: rank correlation of label-free scores with accuracy; right: '
        f'difference in accuracy between heads; 95 % intervals">\n<style>{STYLE}</style>\n'
        f"{left}{right}</svg>\n"
    )


def _heads(runs: pd.DataFrame) -> list[Line]:
    table = paired_heads(runs, "default", "rbfn").set_index("method")
    rows = {name: table.loc[name] for name in METHODS if name in table.index}
    return [
        Line(METHODS[name], *(100 * row[key] for key in ("difference", "low", "high")), "ours",
             strong=name == "pooled")
        for name, row in rows.items()
    ]  # fmt: skip


def _scores(table: pd.DataFrame, names: Mapping[str, str], labels: Container[str]) -> list[Line]:
    lines = []
    for name in (n for n in SHOWN if n in table.index):
        kind = "ours" if name == SHOWN[0] else "label" if name in labels else "other"
        text = "view retrieval" if name == SHOWN[0] else names[name]
        values = (float(table.loc[name, key]) for key in ("rho", "low", "high"))
        lines.append(Line(text, *values, kind, strong=name == SHOWN[0]))
    return lines


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
