"""The figure of the README and of docs/FINDINGS.md, as SVG: panels of points with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, ROW, TOP, FOOT = 980, 27, 72, 44
LETTER, GAP = 7.2, 16  # of a name, in pixels; between names and points
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #3d4451; }
.title { font-weight: 600; font-size: 15px; fill: #1d222b; }
.note { font-size: 12px; fill: #7a8494; }
.ours { fill: #2f7fd0; stroke: #2f7fd0; } .other { fill: #8b94a3; stroke: #8b94a3; }
.label { fill: #e08a2c; stroke: #e08a2c; }
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
    kind: str  # ours, other, or label: what needs labels


@dataclass(frozen=True)
class Panel:
    title: str
    note: str
    lines: Sequence[Line]
    form: str  # of the numbers at the axis
    limits: tuple[float, float] | None = None

    @property
    def height(self) -> int:
        return TOP + ROW * len(self.lines) + FOOT


def draw(panels: Sequence[Panel]) -> str:
    """The panels in two columns, row by row; blue is ours, orange needs labels."""
    column, y, parts = WIDTH // 2, 0, []
    for i in range(0, len(panels), 2):
        row = panels[i : i + 2]
        parts += [_panel(panel, 16 + column * n, y, column - 32) for n, panel in enumerate(row)]
        y += max(panel.height for panel in row)
    label = escape("; ".join(f"{panel.title} {panel.note}" for panel in panels), {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'aria-label="{label}; 95 % intervals">\n<style>{STYLE}</style>\n{"".join(parts)}</svg>\n'
    )


def _panel(panel: Panel, x: float, y: float, width: float) -> str:
    ends = [end for line in panel.lines for end in (line.low, line.high)]
    low, high = panel.limits or (min(-1.0, *ends), max(1.0, *ends))
    names = LETTER * max(len(line.name) for line in panel.lines) + GAP
    start, room = x + names, width - names

    def at(value: float) -> float:
        return start + room * (min(max(value, low), high) - low) / (high - low)

    top, bottom = y + TOP, y + TOP + ROW * len(panel.lines)
    parts = [f'<text class="title" x="{x}" y="{y + 26}">{escape(panel.title)}</text>',
             f'<text class="note" x="{x}" y="{y + 46}">{escape(panel.note)}</text>']  # fmt: skip
    ticks = room // 48
    step = 0.5 if (high - low) / 0.5 <= ticks else max(1.0, math.ceil((high - low) / ticks))
    tick = step * -int(-low // step)
    while tick <= high + 1e-9:
        kind = "zero" if abs(tick) < 1e-9 else "axis"
        text = panel.form.format(tick).replace("-", "−") if kind == "axis" else "0"
        parts.append(f'<line class="{kind}" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{top - 12}"'
                     f' y2="{bottom}"/><text class="note" x="{at(tick):.1f}" y="{bottom + 18}" '
                     f'text-anchor="middle">{text}</text>')  # fmt: skip
        tick += step
    for i, line in enumerate(panel.lines):
        ours, middle = line.kind == "ours", top + ROW * i + 6
        parts.append(
            f'<text class="{"strong" if ours else ""}" x="{start - GAP + 4:.1f}" y="{middle + 4}" '
            f'text-anchor="end">{escape(line.name)}</text><g class="{line.kind}"><line '
            f'x1="{at(line.low):.1f}" x2="{at(line.high):.1f}" y1="{middle}" y2="{middle}" '
            f'stroke-width="{3 if ours else 2}" stroke-linecap="round"/>'
            f'<circle cx="{at(line.value):.1f}" cy="{middle}" r="{6 if ours else 5}"/></g>'
        )
    return "\n".join(parts) + "\n"
