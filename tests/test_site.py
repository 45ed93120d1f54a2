"""The site builds without a warning, has a page a score and a method, and opens in a browser."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pandas as pd
import pytest

import radial
import radial.data
import radial.methods
import radial.metrics
from browser_probe import TELL, browse
from radial.methods import METHODS
from radial.metrics.registry import SCORES

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link that leads nowhere or a page without docstring ends it."""
    out = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def words(page: Path) -> str:
    text = re.sub(r"<(script|style)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_every_score_and_method_has_its_page(site: Path) -> None:
    for name, info in SCORES.items():
        text = words(site / "scores" / f"{name}.html")
        assert info.description[1:] in text
        assert "When it fails" in text
    for name, kind in METHODS.items():
        text = words(site / "methods" / f"{name}.html")
        assert (kind.__doc__ or "").strip().splitlines()[0].rstrip(".") in text


def test_figures_stand_under_their_names(site: Path) -> None:
    """Of one method and one score, by the kept results themselves."""
    runs = pd.read_parquet(ROOT / "docs" / "findings" / "arms" / "results.parquet")
    of = runs[runs["method"] == "moco"].groupby("head")["accuracy"].mean() * 100
    page = (site / "methods" / "moco.html").read_text(encoding="utf-8")
    page = page[page.index('id="what-the-findings-say"') :]
    heads, cells = (
        [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in
         re.findall(rf"<{tag}[ >].*?</{tag}>", page, flags=re.S)] for tag in ("th", "td")
    )  # fmt: skip
    told = {head.split(">")[-1]: float(cell.split()[0]) for head, cell in zip(heads, cells)}
    assert told == pytest.approx(of.to_dict(), abs=0.051)
    page = words(site / "scores" / "view_retrieval.html")
    tables = (ROOT / "docs" / "FINDINGS-TABLES.md").read_text(encoding="utf-8")
    of_all = tables[tables.index("<!-- every -->") :]
    said = re.search(r"^\| `view_retrieval@backbone` \| ([^|]+?) \|", of_all, flags=re.M)
    assert said is not None
    assert said[1] in page
    assert "Misled by: × code, × collapse" in page


def test_the_reference_has_everything_public(site: Path) -> None:
    for module in (radial, radial.metrics, radial.methods, radial.data):
        page = (site / "reference" / f"{module.__name__}.html").read_text(encoding="utf-8")
        for name in module.__all__:
            if name not in ("functions", "metrics"):  # modules
                assert f'id="{module.__name__}.{name}"' in page, name


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md)")
    kept = re.search(r"^validation:\n(?: .*\n)+", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    assert kept
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nstrict: true\n{kept[0]}")
    command = [sys.executable, "-m", "mkdocs", "build"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gone.md" in done.stderr


LOOK = f"""<script>addEventListener("load", () => setTimeout(() => {{
  const wide = document.documentElement.scrollWidth > innerWidth;
  const found = {{
    title: document.querySelector("h1").innerText.trim(), wide,
    blank: document.querySelector("article").innerText.length < 200,
    asked: performance.getEntriesByType("resource").map(e => e.name)
      .filter(n => !n.startsWith(location.origin) && !n.startsWith("data:")),
  }};
  {TELL}
}}, 500))</script>"""


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as found:
        Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize(
    "page", ["index", "tasks/score", "scores/lidar", "methods/dino", "reference/radial", "FINDINGS"]
)
def test_pages_open_in_a_browser(page: str, width: int, site: Path, server: str) -> None:
    """At two widths: no complaint, nothing that sticks out, no other server asked."""
    path = site / f"{page}.html"
    place = "/".join([server, *page.split("/")[:-1]])
    found, complaints = browse(path.read_text(encoding="utf-8"), LOOK, path.parent, width, place)
    assert complaints == []
    assert found["title"]
    assert not found["blank"]
    assert not found["wide"]
    assert found["asked"] == []
