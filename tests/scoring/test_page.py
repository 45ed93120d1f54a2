"""The page of report cards: its text, and what a browser makes of it."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from browser_probe import TELL, browse
from radial.metrics.scores import Score
from radial.scoring.card import Card
from radial.scoring.figures import Atlas, Figures, Neighbours
from radial.scoring.leaderboard import STANDINGS, standing
from radial.scoring.page import page
from radial.scoring.plots import MAP_POINTS
from radial.scoring.result import Result

EVIL = "</script><script>alert(1)</script>"
REASONS = {
    "ok": "",
    "dead head": "all 48 kernels of layer 1 give 0 for every image; calibrate(head, features)",
    "untrained": "the weights are those of the initialisation",
    "collapsed": "all embeddings are the same to 1e-6 of their mean square",
    "broken": "the output is not finite",
    "not measured": "the file holds no projection head",
}


@cache
def digits() -> Tensor:
    """(1797, 3, 16, 16) uint8"""
    grey = (torch.tensor(load_digits().images) * 255 / 16).to(torch.uint8)
    return grey[:, None].repeat_interleave(2, 2).repeat_interleave(2, 3).expand(-1, 3, -1, -1)


def example(status: str = "ok", target: str = "runs/simclr-rbfn", *, seed: int = 0) -> Card:
    """A card as scoring would make it of digits: real features, kernels and distances."""
    random = torch.Generator().manual_seed(seed)
    pixels = digits()[:, 0].flatten(1).double() / 255
    x = (pixels @ torch.randn(256, 128, generator=random, dtype=torch.float64) / 4).tanh()
    if status == "collapsed":
        x = x.mean(0) + 1e-7 * (x - x.mean(0)) + 1e-3 * x[:, :1]
    kernels = 48
    if status in ("dead head", "untrained"):  # as published: centres anywhere, shapes near 1
        x = x * 4
        centres = 2 * torch.rand(kernels, 128, generator=random, dtype=torch.float64) - 1
        shapes = (0.1 * torch.randn(kernels, generator=random, dtype=torch.float64)).exp()
    else:
        centres = x[torch.randperm(len(x), generator=random)[:kernels]] * 0.97
        shapes = 1.0 / torch.cdist(x, centres).square().mean(0).sqrt()
    r = torch.cdist(x, centres)
    axes = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    plane = axes.Vh[:2].T
    nearest = r.argmin(1)
    share = torch.bincount(nearest, minlength=kernels) / len(x)
    shown = share.argsort(descending=True, stable=True)[:12]
    spectrum = (axes.S / axes.S[0]).square()
    figures = Figures(
        spectra={
            "backbone": tuple(spectrum.tolist()),
            "projector": tuple(spectrum[:64].pow(1.6).tolist()),
        },
        kernel_distances=tuple(torch.pdist(centres).tolist()),
        image_distances=tuple(r.flatten()[::17].tolist()),
        widths=tuple((0.5**0.5 / shapes).tolist()),
        kernel_map=tuple(map(tuple, ((centres - x.mean(0)) @ plane).tolist())),
        feature_map=tuple(map(tuple, ((x - x.mean(0)) @ plane).tolist())),
        nearest=tuple(nearest.tolist()),
        map_variance=float(axes.S[:2].square().sum() / axes.S.square().sum()),
        atlas=Atlas(
            kernels=tuple(shown.tolist()),
            shares=tuple(share[shown].tolist()),
            images=torch.stack([digits()[r[:, k].argsort()[:8]] for k in shown]),
        ),
    )
    return Card(
        target=target,
        kind="run",
        backbone="resnet9-w0.125",
        method="simclr",
        head="rbfn",
        status=status,
        reason=REASONS[status],
        scores=scores(status, float(seed)),
        data={"name": "digits", "images": 1797, "size": 32, "seed": 0, "views": {"count": 2}},
        versions={"radial": "0.4.0", "torch": "2.6.0"},
        figures=figures,
    )


def scores(status: str, shift: float = 0.0) -> tuple[Score, ...]:
    alive = status == "ok"
    constant = "" if alive else "every image gives the same output: a score of rounding errors"

    def one(name: str, layer: str, value: float, better: str, spread: float, **other) -> Score:
        interval = {"low": value - spread, "high": value + spread, "samples": 1797}
        return Score(name=name, layer=layer, value=value, better=better, **(interval | other))

    return (
        one("sns_paper", "kernels", 0.0 if alive else 0.2371, "higher", 0.0, low=None, high=None,
            samples=48, settings="shapes for widths", start=0.2368,
            warning="underflows on a head that is alive" if alive else ""),
        one("sns_width", "kernels", 0.3121 if alive else 3.2e-9, "higher",
            0.004 if alive else 1e-9, samples=48, settings="δ with σ for ε"),
        one("rankme", "backbone", 41.2 + shift, "higher", 0.6, settings="uncentred, ε 1e-7"),
        one("alpha_req", "backbone", 1.08 if alive else 2.9, "near 1", 0.05, settings="centred"),
        one("uniformity", "backbone", -2.41 if alive else -0.31, "lower", 0.03, settings="t 2"),
        one("rankme", "projector", 23.6 if alive else 1.0001, "higher", 0.4 if alive else 1e-4,
            settings="uncentred, ε 1e-7", warning=constant),
        one("lidar", "projector", 18.9 + shift if alive else math.nan, "higher", 0.5,
            settings="δ 1e-4, ε 1e-7", warning=constant),
        one("trace", "projector", 3.1, "none", 0.1, settings="of the covariance"),
    )  # fmt: skip


class Parsed(HTMLParser):
    """Start tags with their attributes, scripts, and the table's cells by (layer, row) heading."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []  # of what is seen
        self.rows: list[list[str]] = []
        self.bold: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if {"td", "strong"} <= set(self.open):
            self.bold.append(data)

    def row(self, name: str) -> list[str]:
        """The first row of that name, its white space made single."""
        rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]
        return next(row for row in rows if row[0].split(" ")[0] == name)


def bare(*given: Score, status: str = "ok", target: str = "run", **facts: Any) -> Card:
    """A card without figures: its page needs no plotly.js and is quickly made."""
    return replace(example(status, target), scores=given, figures=None, **facts)


def score(value: float, half_width: float | None = 0.1, **facts: Any) -> Score:
    low, high = (None, None) if half_width is None else (value - half_width, value + half_width)
    known = {"name": "rankme", "layer": "backbone", "samples": 100, "better": "higher"}
    return Score(value=value, low=low, high=high, **(known | facts))


def test_everything_is_on_the_page() -> None:
    cards = [example(status, f"runs/{status}", seed=i) for i, status in enumerate(REASONS)]
    text = page(cards)
    seen = Parsed(text)
    words = " ".join(" ".join(seen.text).split())
    for card in cards:
        assert card.reason in words
    assert Result(cards).board.answer in words
    assert "not over training seeds" in words
    chips = [a["class"] for tag, a in seen.tags if (a.get("class") or "").startswith("chip ")]
    colours = {"ok": "good", "untrained": "warn", "not measured": "mute"}
    placed = [colours.get(card.status, "bad") for card in Result(cards).board.cards]
    assert chips[:6] == [f"chip {colour}" for colour in placed]
    heads = [row[0] for row in seen.rows if len(row) == 1]
    found = {standing(score.key) for card in cards for score in card.scores}
    assert len(found) > 1
    said = [words for name, words in STANDINGS.items() if name in found]
    assert heads == [words[0].upper() + words[1:] for words in said]
    scopes = [a.get("scope") for tag, a in seen.tags if tag == "th"]
    assert set(scopes) == {"col", "row", "rowgroup"}
    assert [tag for tag, _ in seen.tags].count("details") == len(cards)
    assert sum("open" in a for tag, a in seen.tags if tag == "details") == 1
    pictures = [a for tag, a in seen.tags if tag == "img"]
    assert len(pictures) == 12 * len(cards)
    assert all("kernel" in (a["alt"] or "") for a in pictures)
    plots = [a["data-figure"] for _, a in seen.tags if a.get("data-figure")]
    assert len(set(plots)) == len(plots) == 1 + 2 * len(cards)
    assert page(cards) == text


def test_values_intervals_settings_and_footnotes() -> None:
    warning = "fewer images than features"
    first = bare(
        score(41.237, 0.5, settings="uncentred"),
        score(math.nan, None, name="lidar", warning=warning),
        score(12345.6, 10.0, name="nesum", samples=100),
        score(0.2, 0.01, name="sns_paper", layer="kernels", start=0.2371),
        target="first",
    )
    second = bare(
        score(40.9, 0.5, settings="uncentred"),
        score(3.0e-7, 1e-7, name="nesum", samples=50, warning=warning),
        target="second",
    )
    seen = Parsed(page([first, second]))
    assert seen.row("rankme") == [
        "rankme ↑ backboneN = 100 · uncentred",
        "41.24 [40.74, 41.74]",
        "40.90 [40.40, 41.40]",
    ]
    assert seen.row("lidar") == ["lidar ↑ backboneN = 100", "–1", "–"]
    assert seen.row("nesum") == [  # N differs: it stands in the cells
        "nesum ↑ backbone",
        "12,346 [12,336, 12,356] N = 100",
        "3.00·10⁻⁷1 [2.00·10⁻⁷, 4.00·10⁻⁷] N = 50",
    ]
    assert seen.row("sns_paper")[1] == "0.2000 [0.1900, 0.2100] start 0.2371"
    notes = [a for _, a in seen.tags if (a.get("id") or "").startswith("note-")]
    links = [a for _, a in seen.tags if (a.get("href") or "").startswith("#note-")]
    assert len(notes) == 1  # one text, one note, two marks
    assert [(a["href"], a["title"]) for a in links] == [("#note-1", warning)] * 2
    assert warning in seen.text


@pytest.mark.parametrize(
    ("scores", "statuses", "bold"),
    [
        ([score(5), score(4), score(3)], "ok ok ok", "5.000"),
        ([score(5), score(4.9), score(3)], "ok ok ok", None),  # intervals overlap
        ([score(5), score(4), score(3)], "dead_head ok ok", None),  # a dead head wins nothing
        ([score(5), score(4), score(3)], "ok dead_head ok", "5.000"),
        ([score(5, warning="few images"), score(4), score(3)], "ok ok ok", None),
        ([score(5), score(4, warning="few images"), score(3)], "ok ok ok", "5.000"),
        ([score(5), score(4, None), score(3)], "ok ok ok", None),  # nothing is known of 4
        ([score(5, None), score(4), score(3)], "ok ok ok", None),
        ([score(5), score(math.nan, None), score(3)], "ok ok ok", "5.000"),
        ([score(5), score(math.nan, None)], "ok ok", None),  # alone
        ([score(5)], "ok", None),
        ([score(5, better="lower"), score(4, better="lower")], "ok ok", "4.000"),
        ([score(0.5, better="near 1"), score(1.2, 0.05, better="near 1")], "ok ok", "1.200"),
        ([score(0.8, better="near 1"), score(1.2, better="near 1")], "ok ok", None),
        ([score(1.0, 0.5, better="near 1"), score(1.7, better="near 1")], "ok ok", "1.000"),
        ([score(5, better="none"), score(4, better="none")], "ok ok", None),
    ],
)
def test_bold_is_the_best_beyond_doubt(scores, statuses, bold) -> None:
    states = [status.replace("_", " ") for status in statuses.split()]
    cards = [bare(s, status=state) for s, state in zip(scores, states)]
    assert Parsed(page(cards)).bold == ([bold] if bold else [])


def test_names_cannot_break_out() -> None:
    """The same tags in the same order, whatever the names are."""

    def card(word: str) -> Card:
        made = example("dead head", word)
        figures = replace(made.figures, spectra={word: (1.0, 0.5), "backbone": (1.0, 0.1)})
        odd = {"name": word, "layer": word, "settings": word, "warning": word, "better": "higher"}
        facts = {"kind": word, "backbone": word, "method": word, "head": word, "reason": word}
        return replace(
            made,
            **facts,
            scores=(score(1.0, **odd),),
            warnings=(word,),
            data={word: word, "list": [word], "table": {word: word}},
            versions={word: word},
            figures=figures,
        )

    plain, evil = (Parsed(page([card(w), example()])) for w in ("harmless", EVIL))
    assert [t for t, _ in evil.tags if t != "wbr"] == [t for t, _ in plain.tags if t != "wbr"]
    assert len(evil.scripts) == len(plain.scripts)
    assert EVIL in evil.text  # shown as it is written
    assert not any("alert(1)</" in script for script in evil.scripts)


def test_nothing_is_fetched() -> None:
    seen = Parsed(page([example(), example("dead head", "other")]))
    places = [a[key] for _, a in seen.tags for key in ("src", "href", "srcset") if a.get(key)]
    assert len(places) > 24
    assert all(place.startswith(("data:", "#")) for place in places)
    policies = [a["content"] for _, a in seen.tags if a.get("http-equiv")]
    assert policies[0].startswith("default-src 'none'; img-src data: blob:;")
    assert not any(tag in ("iframe", "object", "embed", "base") for tag, _ in seen.tags)


def test_a_page_stays_below_5_mb() -> None:
    """Noise, which no format makes small, in every place for a picture, of many targets."""
    card = example()
    many = 10 * card.figures.feature_map, 10 * card.figures.nearest
    noise = torch.randint(256, (256, 8, 3, 64, 64), generator=torch.Generator().manual_seed(0))
    noise = noise.to(torch.uint8)
    figures = replace(
        card.figures,
        feature_map=many[0],
        nearest=many[1],
        atlas=Atlas(kernels=tuple(range(256)), shares=(1 / 256,) * 256, images=noise),
        neighbours=Neighbours(queries=noise[0, :6], images=noise[:6], cosines=((0.5,) * 8,) * 6),
    )
    for count in (1, 12):
        cards = [replace(card, target=f"t{i}", figures=figures) for i in range(count)]
        text = page(cards)
        assert 2_000_000 < len(text.encode()) < 5_000_000
        drawn = re.findall(r'"customdata":\[([\d,]+)\]', text)
        shown = min(MAP_POINTS, 3 * MAP_POINTS // count)
        assert [len(points.split(",")) for points in drawn] == [shown, 48] * count
        assert text.count('<ul class="atlas">') >= count  # each has its share
        assert text.count('class="query"') >= 1


def test_neighbours_stand_beside_their_image() -> None:
    card = example()
    pictures = digits()[:42].reshape(6, 7, 3, 16, 16)
    near = Neighbours(
        queries=pictures[:, 0],
        images=pictures[:, 1:],
        cosines=((0.9, 0.8, 0.7, 0.6, 0.5, 0.4),) * 6,
    )
    figures = replace(card.figures, neighbours=near)
    text = page([replace(card, target=name, figures=figures) for name in ("one", "two")])
    strips = [a for tag, a in Parsed(text).tags if tag == "img" and "Nearest by" in a["alt"]]
    assert len(strips) == 12
    assert strips[0]["alt"] == "Nearest by one: cosines 0.90, 0.80, 0.70, 0.60, 0.50, 0.40"
    assert (strips[0]["width"], strips[0]["height"]) == ("101", "16")  # six in a row


def test_atlas_pictures_are_the_images() -> None:
    card = example()
    pictures = [a for tag, a in Parsed(page([card])).tags if tag == "img"]
    images = card.figures.atlas.images
    assert len(pictures) == len(images)
    for attributes, expected in zip(pictures, images):
        data = base64.b64decode(attributes["src"].partition(";base64,")[2])
        picture = Image.open(io.BytesIO(data))
        assert picture.size == (int(attributes["width"]), int(attributes["height"])) == (67, 33)
        for i, image in enumerate(expected):  # four a row, a pixel of nothing between
            left, top = 17 * (i % 4), 17 * (i // 4)
            tile = picture.crop((left, top, left + 16, top + 16)).convert("RGB")
            off = torch.frombuffer(bytearray(tile.tobytes()), dtype=torch.uint8).double()
            off -= image.permute(1, 2, 0).flatten()
            assert float(off.abs().mean()) < 8.0  # of 255; WebP is lossy
            assert picture.getpixel((16, 0))[3] == 0


def test_an_atlas_of_many_kernels_is_folded() -> None:
    card = example()
    kernels, images = tuple(range(50)), torch.zeros(50, 1, 3, 8, 8, dtype=torch.uint8)
    atlas = Atlas(kernels=kernels, shares=(0.02,) * 50, images=images)
    seen = Parsed(page([replace(card, figures=replace(card.figures, atlas=atlas))]))
    assert [tag for tag, _ in seen.tags if tag in ("details", "img")] == [
        *("details", *20 * ["img"]),
        *("details", *30 * ["img"]),
    ]
    assert "30 more kernels" in seen.text


def test_pictures_of_many_pixels_are_not_shown_as_squares() -> None:
    card = example()
    atlas = Atlas(kernels=(3,), shares=(0.5,), images=torch.zeros(1, 2, 3, 64, 64).byte())
    seen = Parsed(page([replace(card, figures=replace(card.figures, atlas=atlas))]))
    (picture,) = (a for tag, a in seen.tags if tag == "img")
    assert (picture["width"], picture["height"], picture.get("class")) == ("132", "64", None)


def test_reach_is_said_in_words() -> None:
    texts = {}
    for status in ("ok", "dead head"):
        card = example(status)
        texts[status] = " ".join(" ".join(Parsed(page([card])).text).split())
        distances = torch.tensor(card.figures.image_distances)
        ratio = float(distances.median() / torch.tensor(card.figures.widths).median())
        assert f"In the median it is {ratio:.3g} widths" in texts[status]
    assert (
        "100 % of the distances from image to kernel are within three median widths" in texts["ok"]
    )
    assert (
        "None of the distances from image to kernel are within three median widths"
        in texts["dead head"]
    )


def test_figures_survive_what_is_not_finite() -> None:
    """A broken target: NaN among distances, zeros, one eigenvalue, no atlas."""
    nan = math.nan
    figures = Figures(
        spectra={"backbone": (1.0,), "projector": (nan, nan)},
        kernel_distances=(0.0, 0.0),
        image_distances=(nan, 1.0, 0.0, math.inf),
        widths=(0.7, nan),
        kernel_map=((nan, nan),),
        feature_map=((0.0, nan), (1.0, 1.0)),
        nearest=(0, 0),
    )
    text = page([replace(example("broken"), figures=figures)])
    seen = Parsed(text)
    assert len([a for _, a in seen.tags if a.get("data-figure")]) >= 3
    for script in (s for s in seen.scripts if s.startswith('{"data"')):
        json.loads(script, parse_constant=pytest.fail)  # no NaN
    nothing = replace(figures, widths=(nan,), feature_map=())
    assert "Do the kernels reach" not in page([replace(example("broken"), figures=nothing)])


def test_facts_stand_once_where_targets_agree() -> None:
    one, two = bare(target="one"), bare(target="two", data={"name": "cifar", "flip": True})
    seen = Parsed(page([one, two]))
    assert seen.row("Versions") == ["Versions", "all targets"]
    assert seen.row("torch") == ["torch", "2.6.0"]
    assert seen.row("name") == ["name", "digits", "cifar"]
    assert seen.row("flip") == ["flip", "–", "yes"]
    assert seen.row("images") == ["images", "1,797", "–"]
    assert seen.row("views") == ["views", "count 2", "–"]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_number_of_targets(count) -> None:
    seen = Parsed(page([bare(*scores("ok"), target=f"t{i}") for i in range(count)]))
    assert seen.row("score") == ["score", *(f"t{i}ok" for i in range(count))]
    assert len(seen.row("rankme")) == count + 1
    assert ("whisker" in str(seen.tags)) == (count > 1)


def test_without_figures_no_plotly_is_needed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)  # as if it were not installed
    text = page([bare(*scores("ok"))])
    assert len(text) < 50_000
    assert "data-figure=" not in text
    with pytest.raises(ValueError, match=r"pip install 'radial-ssl\[score\]'"):
        page([example()])


def test_no_cards() -> None:
    with pytest.raises(ValueError, match="at least one card"):
        page([])


# Older browsers lay out nothing inside closed details: the style does as they do.
PROBE = """<style>details:not([open]) > :not(summary) { display: none }</style>
<script>addEventListener("load", async () => {
  const rest = (time) => new Promise((go) => setTimeout(go, time));
  const drawn = () => document.documentElement.dataset.drawn;
  while (document.getElementById("plotly") && !drawn()) await rest(50);
  const boxes = [...document.querySelectorAll("details")];
  const closed = boxes.filter((box) => !box.open).length;
  boxes.forEach((box) => (box.open = true));
  await new Promise((go) => setTimeout(go, 1500));
  const all = (selector) => [...document.querySelectorAll(selector)];
  const width = (element) => element.getBoundingClientRect().width;
  const found = {
    closed,
    rows: all("table.scores tbody tr:not(.layer)").length,
    plots: all(".js-plotly-plot").length,
    drawn: all(".js-plotly-plot").filter((p) => p.querySelector(".main-svg .trace path")).length,
    misfits: all(".js-plotly-plot").filter(
      (p) => Math.abs(width(p) - width(p.querySelector(".main-svg"))) > 1).length,
    images: all("img").length,
    loaded: all("img").filter((image) => image.complete && image.naturalWidth > 0).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    fetched: performance.getEntriesByType("resource")
      .map((entry) => entry.name).filter((name) => !name.startsWith("data:")),
  };
  TELL
});</script>""".replace("TELL", TELL)


@pytest.mark.parametrize("width", [1280, 600])
def test_in_a_browser(width, tmp_path) -> None:
    cards = [example(), example("dead head", EVIL), example("collapsed", "runs/" + 60 * "x")]
    found, complaints = browse(page(cards), PROBE, tmp_path, width)
    assert complaints == []
    assert found == {
        "closed": 2,
        "rows": 8,
        "plots": 7,  # spectra, and two a target
        "drawn": 7,
        "misfits": 0,  # also those that were drawn inside closed details
        "images": 36,
        "loaded": 36,
        "overflow": 0,
        "fetched": [],
    }


def test_the_browser_sees_what_is_wrong(tmp_path) -> None:
    """An error, a truncated picture and a request, so that the test above can fail."""
    text = page([example()])
    wrong = '<script>throw new Error("thrown on purpose")</script>'
    fetch = '<img src="https://example.org/x.png" alt="">'
    head, atlas = text.split('<ul class="atlas">')
    atlas = re.sub(r'(;base64,\w{40})[^"]+', r"\1", atlas, count=1)
    text = f'{head}<ul class="atlas">{atlas}'.replace("<main>", f"<main>{wrong}{fetch}", 1)
    found, complaints = browse(text, PROBE, tmp_path)
    assert any("thrown on purpose" in line for line in complaints)
    assert any("example.org" in line and "Content Security" in line for line in complaints)
    assert (found["images"], found["loaded"]) == (13, 11)
