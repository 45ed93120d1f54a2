"""What is read: numbers and names in print, and what all pages are made with. Light to import.

What is not known is a dash; a minus is one of print, but on a terminal.

templates/base.html is the frame of a page and templates/base.css its style; a page extends the one
and adds to the other. Its colours are such that light and dark both bear. It needs no network.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import numbers
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.checks import needs

if TYPE_CHECKING:
    from rich.table import Table

NOTHING = "–"
COLOURS = (  # readable on white and on near-black
    "#2f7fd0", "#d9742b", "#2a9d74", "#b457b0", "#a3872a", "#5b6ee1", "#cc4b5c", "#3b97a8",
)  # fmt: skip
GREY = "rgba(128,138,155,.8)"
FONT = "system-ui, sans-serif"
CDN = "https://cdn.plot.ly"
# Of every figure: the style sheet sets the colours of text and grid.
LAYOUT: Mapping[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": FONT, "size": 13},
    "hovermode": "closest",
}
DRAWN: Mapping[str, bool] = {"displayModeBar": False, "displaylogo": False, "responsive": True}


def known(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, numbers.Real) and math.isfinite(value)


def number(value: float) -> str:
    """Four significant digits; powers of ten and the minus sign as in print.

    >>> [number(x) for x in (12345.6, 45.3, -0.25, 0.0, 1.25e-7, float("nan"))]
    ['12,346', '45.30', '−0.2500', '0', '1.25·10⁻⁷', '–']
    """
    if not known(value):
        return NOTHING
    if value == 0.0:
        return "0"
    size = abs(value)
    style = ",.0f" if 999.95 <= size < 1e7 else "#.4g" if 1e-3 <= size < 999.95 else ".2e"
    digits, _, power = f"{value:{style}}".partition("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if power else ""
    return digits.replace("-", "−") + (f"·10{raised}" if raised else "")


def short_number(value: float) -> str:
    """For a terminal: four significant digits, without an exponent where one is not needed.

    >>> short_number(12345.6), short_number(45.3), short_number(float("nan"))
    ('12,346', '45.3', '–')
    """
    if not known(value):
        return NOTHING
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def fixed(value: Any, digits: int = 1, *, sign: bool = False) -> str:
    """So many digits after the point, no sign before nothing.

    >>> fixed(-0.26), fixed(0.26, sign=True), fixed(-0.01, sign=True), fixed(float("nan"))
    ('−0.3', '+0.3', '0.0', '–')
    """
    if not known(value):
        return NOTHING
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def percent(fraction: Any) -> str:
    """
    >>> percent(0.9055)
    '90.5'
    """
    return fixed(100 * fraction) if known(fraction) else NOTHING


def between(low: Any, high: Any, digits: int = 1) -> str:
    """An interval, empty where there is none.

    >>> between(-0.2, 1.0)
    '(−0.2 to 1.0)'
    """
    return f"({fixed(low, digits)} to {fixed(high, digits)})" if known(low) and known(high) else ""


def with_interval(value: Any, low: Any, high: Any, digits: int = 1) -> str:
    """
    >>> with_interval(0.4, -0.2, 1.0)
    '+0.4 (−0.2 to 1.0)'
    """
    return f"{fixed(value, digits, sign=True)} {between(low, high, digits)}".rstrip()


def p_value(p: Any) -> str:
    """
    >>> p_value(0.0004), p_value(0.0321)
    ('< 0.001', '0.032')
    """
    if not known(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def plain(value: Any) -> str:
    """A setting as it is read; nothing where it does not apply.

    >>> plain(128.0), plain(True), plain(None), plain(1e-06)
    ('128', 'yes', '–', '1e-06')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if isinstance(value, int | float) or hasattr(value, "dtype"):
        return f"{float(value):.6g}"
    return str(value)


def words(name: str) -> str:
    """A column's name as it is read.

    >>> words("weight_decay")
    'weight decay'
    """
    return {"base_lr": "base learning rate"}.get(name, name.replace("_", " "))


def several(count: int, noun: str) -> str:
    """
    >>> several(1, "seed"), several(3, "seed")
    ('one seed', '3 seeds')
    """
    return f"one {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def amount(done: int, total: int | None = None, unit: str = "") -> str:
    """How far a task is, in pieces or bytes.

    >>> amount(1200, 40730), amount(1200000, 2700000000, "B")
    ('1,200 of 40,730', '1.2 of 2,700.0 MB')
    """
    counts = [done] if total is None else [done, total]
    if unit == "B":
        return " of ".join(f"{count / 1e6:,.1f}" for count in counts) + " MB"
    return " of ".join(f"{count:,}" for count in counts)


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def terminal_table(texts: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """For a terminal: columns of text, then columns of numbers; no cell is wrapped."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def rounded(value: float, digits: int = 4) -> float:
    """So many significant digits: the figures of a page need no more."""
    return float(f"{value:.{digits}g}")


def plotly_text(value: Any) -> str:
    """Text that is safe from Plotly's own markup."""
    return html.escape(str(value), quote=False)


def check_plotly() -> None:
    """Raises, with what to install, where a page could not be written."""
    needs("score", "jinja2", "plotly")


def plotly_script(*, small: bool = False) -> Any:
    """The script element of plotly.js: itself, or where to find just this version of it."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    script = get_plotlyjs()
    if not small:
        return Markup(f"<script>{script}</script>")
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    source = f"{CDN}/plotly-{get_plotlyjs_version()}.min.js"
    return Markup(
        f'<script src="{source}" integrity="sha256-{digest}" crossorigin="anonymous"></script>'
    )


def json_in_page(values: Mapping[str, Any]) -> Any:
    """JSON that may stand inside a script element, whatever it holds."""
    from markupsafe import Markup

    text = json.dumps(values, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def render(template: Path, **values: Any) -> str:
    """The page that a template makes; all that it is given is escaped, but for Markup.

    Args:
        template: its file; what stands beside it, and the shared templates, can be included.
        values: its variables. Each that it uses must be there; functions may be among them.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).with_name("templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(template.name).render({"elsewhere": ""} | values)
