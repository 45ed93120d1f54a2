"""What every page is made with: templates, plotly.js, and colours that light and dark both bear.

templates/base.html is the frame of a page and templates/base.css its style; a page extends the one
and adds to the other. A page needs no network.
"""

from __future__ import annotations

import hashlib
import html
import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def rounded(value: float, digits: int = 4) -> float:
    """So many significant digits: the figures of a page need no more."""
    return float(f"{value:.{digits}g}")


def plotly_text(value: Any) -> str:
    """Text that is safe from Plotly's own markup."""
    return html.escape(str(value), quote=False)


def check_plotly() -> None:
    """Raises ValueError, with what to install, where plotly is missing."""
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise ValueError("the page needs plotly: pip install 'radial-ssl[study]'") from error


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
