"""The report of a study: its figures against the runs, its files, and the page in a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from browser_probe import TELL, browse
from radial.metrics.registry import HEADLINES
from radial.presentation import fixed, number
from radial.study.plan import from_values, read_study
from radial.study.report import page, read_report, write_report
from radial.study.report.charts import MOST_LINES, MOST_POINTS, curve_panel
from radial.study.report.headlines import declared, key_figures, summary
from radial.study.report.write import markdown_of, write_table
from radial.study.store import Store

EVIL = "</script><script>alert(1)</script>"
SECTIONS = ("curves", "peaks", "heads", "importance", "scatter", "correlation", "regret", "seeds",
            "audit", "runs", "basis")  # fmt: skip
CURVES = ["train_loss", "knn", "rankme@backbone"]
SCORED = {"rankme": "backbone", "alpha_req": "backbone", "lidar": "projector"}


def make_store(path: Path, *, data: tuple[str, ...] = ("digits",), name: str = "made", **changes):
    """A store of 24 runs a dataset: numbers that a study could have given, none computed."""
    values: dict[str, Any] = {
        "name": name,
        "constants": {"backbone": "resnet9-w0.125", "batch_size": 128, "epochs": 4},
        "grid": {"data": list(data), "base_lr": [0.03, 0.12, 0.3]},
        "methods": ["simclr", "byol"],
        "heads": ["default", "rbfn"],
        "seeds": [0, 1],
        "score": {"images": 64, "view_images": 32},
    }
    store = Store(path)
    study = from_values(values | changes)
    store.create(study)
    asked = store.steps(study)
    random = np.random.default_rng(5)
    for run in study.runs():
        config, folder = run.config, store.run(run.id)
        dead = config.head == "rbfn" and config.base_lr == 0.03 and config.method == "simclr"
        skill = 0.7 + 0.1 * math.log10(config.base_lr / 0.03) + 0.05 * (config.head == "rbfn")
        skill += 0.1 * (config.method == "simclr") + 0.01 * random.standard_normal()
        skill = 0.41 if dead else skill
        write(folder / "config.yaml", yaml.safe_dump(config.to_dict()))
        write(folder / "environment.json", {"torch": "2.14.1", "python": "3.11", "seed": 1})
        result = {"verdict": "dead head" if dead else "ok", "reason": "", "steps": 36,
                  "epochs": 4, "seconds": 10.0, "train_loss": 5.541 if dead else 5 - skill,
                  "constant_loss": math.log(255) if config.method == "simclr" else -1.0,
                  "val_loss": None, "head_health": "alive"}  # fmt: skip
        write(folder / "result.json", result)
        level = math.log(255) if config.method == "simclr" else 0.0
        lines = [f"{e},{9 * e},{5.541 if dead else level - skill * e / 4},,{0.2 * e}"
                 for e in range(1, 5)]  # fmt: skip
        write(folder / "metrics.csv", "\n".join(["epoch,step,train_loss,val_loss,knn", *lines]))
        looks = [f"1,{step},{step}" for step in (3, 6, 9)]  # the monitor may look between epochs
        write(folder / "monitor.csv", "\n".join(["epoch,step,rankme@backbone", *looks]))
        if study.evaluate is not None:
            metrics = {k: round(skill + 0.002 * i, 6) for i, k in
                       enumerate(("accuracy", "f1", "precision", "recall"))}  # fmt: skip
            probe = metrics | {"low": skill - 0.02, "high": skill + 0.02, "test_samples": 360}
            few = {"accuracy": skill - 0.2 + 0.02 * random.standard_normal()}
            found = {"probes": {"exact": probe}, "knn_few": few}
            write(folder / "eval.json", found | {"asked": asked["eval.json"]})
        if study.score is not None:
            noise = dict(zip(SCORED, random.standard_normal(len(SCORED)) * 0.03))
            scores = [{"name": k, "layer": layer, "value": 100 * (skill + noise[k])}
                      for k, layer in SCORED.items()]  # fmt: skip
            scores.append({"name": "sns_paper", "layer": "kernels",
                           "value": 0.24 if config.head == "rbfn" else None})  # fmt: skip
            card = {"status": "ok", "scores": scores}
            write(folder / "scores.json", card | {"asked": asked["scores.json"]})
        if study.checkpoints:
            less = {name: value - 0.1 for name, value in probe.items()}
            row = {"epoch": 2, "train_loss": 5.2, "card": card,
                   "evaluation": {"probes": {"exact": less}, "knn_few": few}}  # fmt: skip
            found = {"rows": [row], "asked": asked["checkpoints.json"]}
            write(folder / "checkpoints.json", found)
    return store


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_store(tmp_path_factory.mktemp("study") / "s").path


@pytest.fixture(scope="module")
def report(study):
    return read_report(study)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The report of a study of two datasets."""
    folder = tmp_path_factory.mktemp("two") / "s"
    return read_report(make_store(folder, data=("digits", "cifar10")).path)


@pytest.fixture(scope="module")
def text(report) -> str:
    return page(report)


class Parsed(HTMLParser):
    """Tags, text that is seen, scripts, and the rows of each table by its label."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.inside = ""
        self.row: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.tags.append((tag, values))
        label = values.get("aria-label") or ""
        if label.startswith("Table "):
            self.table = self.tables.setdefault(label.removeprefix("Table "), [])
        if tag == "tr":
            self.row = []
        if tag in ("td", "th") and self.row is not None:
            self.row.append("")
        if tag in ("script", "style"):
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr" and self.row and hasattr(self, "table"):
            self.table.append([" ".join(cell.split()) for cell in self.row])
        if tag in ("script", "style"):
            self.inside = ""
        if tag == "table":
            self.row = None

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts.append(data)
        elif not self.inside:
            self.words.append(data)
            if self.row:
                self.row[-1] += data

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_section_is_there(text) -> None:
    seen = Parsed(text)
    found = [a["id"] for tag, a in seen.tags if tag == "section"]
    assert found == list(SECTIONS)
    links = [a["href"] for tag, a in seen.tags if tag == "a"]
    assert links == [f"#{key}" for key in SECTIONS]
    drawn = {a["id"] for _, a in seen.tags if a.get("class") == "plot"}
    assert drawn == {f"plot-{name}" for name in material(text)["figures"]}
    tables = {"curves", "peaks", "heads", "importance", "judgement", "correlations", "seeds",
              "audit_counts", "audit_correlations", "audit_flags", "runs"}  # fmt: skip
    assert set(seen.tables) == tables
    buttons = [a["data-csv"] for _, a in seen.tags if "data-csv" in a]
    assert tables <= set(buttons)


def test_figures_are_those_of_the_runs(report, text) -> None:
    """Recomputed from the frame of runs with scipy and pandas alone."""
    seen, runs = Parsed(text), report.runs
    best = runs.groupby(["method", "head"])["accuracy"].max() * 100
    row = next(row for row in seen.tables["peaks"] if row[0] == "simclr")
    assert row[2] == f"{best['simclr', 'default']:.1f}"
    assert row[7] == f"{best['simclr', 'rbfn']:.1f}"
    means = runs.groupby(["method", "seed", "head"])["accuracy"].mean().unstack("head") * 100
    difference = (means["rbfn"] - means["default"]).to_numpy()
    low, high = stats.t.interval(
        0.95, len(difference) - 1, difference.mean(), stats.sem(difference)
    )
    said = f"{difference.mean():+.1f} ({low:.1f} to {high:.1f})".replace("-", "−")
    assert f"rbfn minus default is {said} points of accuracy over 4 pairs" in seen.said
    verdict = "not decided" if low <= 0 <= high else "rbfn is "
    assert verdict in seen.said
    rho = [stats.spearmanr(part["rankme@backbone"], part["accuracy"]).statistic
           for _, part in runs.groupby("method")]  # fmt: skip
    mean = math.tanh(np.mean(np.arctanh(rho)))
    row = next(row for row in seen.tables["judgement"] if row[0].startswith("rankme backbone"))
    assert row[1] == f"{mean:+.2f}"
    assert "2 of 24 runs show no sign of having learned" in seen.said


def test_the_headline_is_the_score_declared_in_advance(report, text) -> None:
    """Not the best of many, which is named as that."""
    judged = report.analysis.judgement.query("kind == 'score'").set_index("score")["spearman"]
    first = next(name for name in HEADLINES if name in judged and name != "sns_width@kernels")
    best = judged.idxmax()
    assert first != best  # else this could not fail
    large = [figure for figure in key_figures(report) if "ρ" in figure.label]
    assert [figure.note.split()[0] for figure in large] == [first]
    assert large[0].value == fixed(judged[first], 2, sign=True)
    assert material(text)["figures"]["scatter-0-0"]["first"] == first
    for sentence in summary(report):
        if best in sentence:
            assert f"best of {judged.count()}" in sentence
            assert "no evidence" in sentence


def test_a_score_that_few_runs_have_is_no_headline(report) -> None:
    judged = report.analysis.judgement.copy()
    judged.loc[judged["score"] == "lidar@projector", "n"] -= 1
    assert declared(judged)["score"] == "rankme@backbone"
    assert declared(judged[judged["kind"] == "baseline"]) is None


def test_learning_curves_are_those_of_the_runs(study, report, text) -> None:
    """First of all sections; each run a line in the panel of its method, in each that it has."""
    panels = [f for name, f in material(text)["figures"].items() if name.startswith("curves-")]
    assert [panel["title"] for panel in panels] == ["simclr", "byol"]
    drawn = {}
    for panel in panels:
        assert [choice["name"] for choice in panel["choices"]] == CURVES
        for choice in panel["choices"]:
            for run, x, y in (line for head in choice["lines"] for line in head):
                drawn[report.runs["run"][run], choice["name"]] = dict(zip(x, y))
    assert len(drawn) == len(report.runs) * len(CURVES)
    for run in report.runs["run"]:
        table = pd.read_csv(study / "runs" / run / "metrics.csv")
        for name in ("train_loss", "knn"):
            assert drawn[run, name] == pytest.approx(dict(zip(table["epoch"], table[name])), 1e-3)
        assert drawn[run, "rankme@backbone"] == pytest.approx({0.333: 3, 0.667: 6, 1: 9}, 1e-3)
    (level,) = panels[0]["choices"][0]["shapes"]  # of SimCLR; dead runs lie on it
    assert level["y0"] == pytest.approx(math.log(255))


def test_learning_curves_in_markdown(report) -> None:
    """First, best and last, as the median of the runs of a method and head."""
    lines = markdown_of(report).splitlines()
    table = lines[lines.index("## Learning curves") :]
    row = next(line for line in table if line.startswith("| byol | rbfn | kNN"))
    assert [cell.strip() for cell in row.split("|")[-4:-1]] == ["0.2000", "0.8000", "0.8000"]
    curves = report.curves.query("method == 'byol' and head == 'rbfn' and series == 'train_loss'")
    last = curves.groupby("run")["value"].last().median()
    row = next(line for line in table if line.startswith("| byol | rbfn | training loss"))
    assert row.split("|")[-2].strip() == number(last)


def test_many_runs_stay_legible() -> None:
    """A page of a thousand runs draws some of them, thinned, from the first point to the last."""
    epochs = np.arange(1, 501)
    curves = pd.concat(
        pd.DataFrame({"run": f"r{i}", "head": "mlp", "series": "knn", "epoch": epochs,
                      "value": np.sqrt(epochs)})
        for i in range(300)
    )  # fmt: skip
    panel = curve_panel("simclr", curves, {f"r{i}": i for i in range(300)}, {})
    (lines,) = panel["choices"][0]["lines"]
    assert len(lines) == MOST_LINES == len({run for run, *_ in lines})
    for _, x, y in lines:
        assert (len(x), x[0], x[-1]) == (len(y), 1, 500) == (MOST_POINTS, 1, 500)


def test_runs_without_curves_are_no_error(tmp_path) -> None:
    store = make_store(tmp_path / "s")
    for i, run in enumerate(store.runs()):
        (store.run(run) / "monitor.csv").write_text("not,a\ntable")
        if i:
            (store.run(run) / "metrics.csv").unlink()
    report = read_report(store.path)
    assert report.curves["run"].unique().tolist() == [store.runs()[0]]
    (store.run(store.runs()[0]) / "metrics.csv").unlink()
    assert (
        "No run has a metrics.csv: no learning curves."
        in Parsed(page(read_report(store.path))).said
    )


def test_a_table_of_results_is_reported_too(report, tmp_path) -> None:
    """All but what only a study's directory knows: its curves."""
    report.runs.to_parquet(tmp_path / "runs.parquet")
    found = read_report(tmp_path / "runs.parquet")
    assert found.curves.empty
    np.testing.assert_allclose(found.analysis.judgement["spearman"],
                               report.analysis.judgement["spearman"])  # fmt: skip
    assert "no learning curves" in page(found)


def test_no_torch_is_needed(study) -> None:
    """What a score is called and which way it points are words."""
    code = (
        "import sys; from radial.study.report import page, read_report\n"
        "page(read_report(sys.argv[1])); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(study)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_decided_difference_is_called_so(tmp_path) -> None:
    store = make_store(tmp_path / "s")
    for run in store.runs():
        values = json.loads((store.run(run) / "eval.json").read_text())
        config = yaml.safe_load((store.run(run) / "config.yaml").read_text())
        gain = 0.05 + 0.001 * config["seed"] if config["head"] == "rbfn" else 0.0
        values["probes"]["exact"]["accuracy"] = 0.6 + gain
        write(store.run(run) / "eval.json", values)
    said = Parsed(page(read_report(store.path))).said
    assert "points of accuracy over 4 pairs of method and seed: rbfn is ahead." in said


def test_names_cannot_break_out(tmp_path) -> None:
    """The same tags in the same order, whatever the names are."""
    pages = []
    for i, word in enumerate(("harmless", EVIL)):
        store = make_store(tmp_path / str(i))
        run = store.runs()[0]
        for name, key in (("config.yaml", "head"), ("result.json", "verdict")):
            file = store.run(run) / name
            values = yaml.safe_load(file.read_text())
            file.write_text(json.dumps(values | {key: word}))
        values = json.loads((store.run(run) / "scores.json").read_text())
        values["scores"].append({"name": word, "layer": word, "value": 1.0})
        write(store.run(run) / "scores.json", values)
        pages.append(Parsed(page(read_report(store.path))))
    plain, evil = ([t for t, _ in seen.tags if t != "wbr"] for seen in pages)
    assert evil == plain
    assert len(pages[0].scripts) == len(pages[1].scripts)
    assert EVIL in pages[1].said
    assert not any("alert(1)</" in script for script in pages[1].scripts)


def test_nothing_is_fetched_and_the_file_is_small(text) -> None:
    from plotly.offline import get_plotlyjs

    seen = Parsed(text)
    places = [a[key] for _, a in seen.tags for key in ("src", "href") if a.get(key)]
    assert all(place.startswith(("data:", "#")) for place in places)
    policy = next(a["content"] for _, a in seen.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data: blob:;")
    assert text.count(get_plotlyjs()) == 1
    assert len(text.encode()) < 8_000_000
    assert len(text.encode()) - len(get_plotlyjs().encode()) < 500_000


def test_a_small_page_names_its_one_source(report) -> None:
    from plotly.offline import get_plotlyjs

    text = page(report, small=True)
    assert len(text.encode()) < 500_000
    seen = Parsed(text)
    (script,) = [a for name, a in seen.tags if name == "script" and a.get("src")]
    digest = hashlib.sha256(get_plotlyjs().encode()).digest()
    assert script["integrity"] == f"sha256-{base64.b64encode(digest).decode()}"
    policy = next(a["content"] for _, a in seen.tags if a.get("http-equiv"))
    assert policy.endswith("script-src 'unsafe-inline' https://cdn.plot.ly")
    assert script["src"].startswith("https://cdn.plot.ly/plotly-")


def test_checkpoints_on_the_way_have_the_flags_of_their_run(tmp_path) -> None:
    changes = {"constants": {"backbone": "resnet9-w0.125", "epochs": 4, "save_every": 2}}
    made = read_report(make_store(tmp_path / "s", checkpoints=True, **changes).path)
    runs, flags = made.runs, made.flags
    assert len(runs) == 2 * len(made.audit.flags) == len(flags) == 48
    for run, flag in flags.items():
        dead = runs.loc[runs["run"] == run.partition("@")[0], "verdict"].item() == "dead head"
        assert ("no signal" in flag) == made.dead[run] == dead, (run, flag)
    rows = Parsed(page(made)).tables["runs"]
    assert sum("@2" in row[0] for row in rows) == 24
    assert sum("no signal" in row[-1] for row in rows) == 4  # two dead runs, two rows each


def test_figures_are_valid_plotly(text) -> None:
    from plotly import graph_objects as go

    figures = material(text)["figures"]
    for figure in figures.values():
        go.Figure(data=figure["data"], layout=figure["layout"])
    choices = figures["scatter-0-0"]["choices"]
    assert [choice["name"] for choice in choices][-2:] == ["train_loss", "knn_1pct"]
    traces = figures["scatter-0-0"]["data"]
    for choice in choices:
        assert [len(x) for x in choice["x"]] == [len(trace["y"]) for trace in traces]


def material(text: str) -> dict[str, Any]:
    return json.loads(re.search(r'id="material">(.*?)</script>', text, re.S)[1])


def test_all_files_are_written_and_read_back(study, report, tmp_path) -> None:
    tables = report.tables()
    told = write_report(study, html=tmp_path / "deep" / "r.html", markdown=tmp_path / "r.md",
                        tables=tmp_path / "tables")  # fmt: skip
    assert told == [f"report: {tmp_path / 'deep' / 'r.html'}", f"markdown: {tmp_path / 'r.md'}",
                    f"tables: {tmp_path / 'tables'} ({len(tables)} as CSV and Parquet)"
                    ]  # fmt: skip
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert names == {f"{name}.{kind}" for name in tables for kind in ("csv", "parquet")}
    for name in ("peaks", "judgement", "importance_values", "curves", "runs"):
        table = tables[name]
        for frame in (pd.read_csv(tmp_path / "tables" / f"{name}.csv"),
                      pd.read_parquet(tmp_path / "tables" / f"{name}.parquet")):  # fmt: skip
            assert list(frame.columns) == list(table.columns)
            for column in table.select_dtypes("number"):
                expected = table[column].to_numpy(np.float64)
                np.testing.assert_allclose(frame[column].to_numpy(np.float64), expected, rtol=1e-12)
    assert (tmp_path / "deep" / "r.html").stat().st_size < 8_000_000


def test_markdown_says_the_same(study, text, tmp_path) -> None:
    write_report(study, html=tmp_path / "r.html", markdown=tmp_path / "r.md")
    lines = (tmp_path / "r.md").read_text(encoding="utf-8").splitlines()
    heads = [line[3:] for line in lines if line.startswith("## ")]
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == [t for t in titles if t not in ("In short", "Scores against accuracy")]
    tables = re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.M)
    assert len(tables) >= 9
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_two_datasets_stand_beside_each_other(two) -> None:
    seen = Parsed(page(two))
    assert "48 runs on digits and cifar10" in seen.said
    blocks = [a["data-set"] for _, a in seen.tags if "data-set" in a]
    assert sorted(set(blocks)) == ["0", "1"]
    assert blocks.count("0") == blocks.count("1") > 1
    assert [row for row in seen.tables["peaks"] if len(row) == 1] == [["digits"], ["cifar10"]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"score": False}, "No scores in this study: no correlations."),
        (
            {"score": False, "evaluate": False},
            "No accuracy in this study: no table can be computed.",
        ),
        ({"seeds": [0]}, "No configuration was run with two seeds: no seed floor."),
        ({"heads": ["default"]}, "No runs with the RBFN head: heads are not compared."),
    ],
)
def test_what_is_missing_is_said(changes, words, tmp_path) -> None:
    store = make_store(tmp_path / "s", **changes)
    report = read_report(store.path)
    text = page(report)
    seen = Parsed(text)
    assert words in seen.said
    assert [a["id"] for tag, a in seen.tags if tag == "section"] == list(SECTIONS)
    drawn = {a["id"] for _, a in seen.tags if a.get("class") == "plot"}
    assert drawn == {f"plot-{name}" for name in material(text)["figures"]}
    assert words[1:-1] in markdown_of(report)
    for name, frame in report.tables().items():
        write_table(frame, tmp_path / name)


def test_no_study_is_an_error(tmp_path) -> None:
    with pytest.raises(ValueError, match="is not a study"):
        write_report(tmp_path, html=tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


PROBE = """<script>addEventListener("load", async () => {
  const wait = (time) => new Promise((go) => setTimeout(go, time));
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const saved = [], whole = Blob;  // read as it is made: its own text() takes real time
  window.Blob = function (parts, how) { saved.push(parts.join("")); return new whole(parts, how); };
  URL.createObjectURL = () => "#";
  HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
  await wait(500);
  saved.length = 0;
  document.querySelector("#runs [data-csv]").click();
  const csv = saved[0];
  all("details").forEach((box) => (box.open = true));
  await wait(200);
  const overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const hovered = {};
  for (const name of ["curves-0-0", "scatter-0-0", "importance-0-0"]) {
    const plot = document.getElementById(`plot-${name}`);
    const point = plot.querySelector(".points path").getBoundingClientRect();
    const place = { clientX: point.x + point.width / 2, clientY: point.y + point.height / 2 };
    const layer = plot.querySelector(".nsewdrag");
    for (const kind of ["mouseover", "mousemove"]) {
      layer.dispatchEvent(new MouseEvent(kind, { ...place, bubbles: true }));
    }
    await wait(400);
    hovered[name] = plot.querySelector(".hoverlayer").textContent;
  }
  const curve = document.querySelector("#curves .choice");
  const line = () => document.querySelector("#plot-curves-0-0 .lines path").getAttribute("d");
  const loss = line();
  curve.selectedIndex = curve.options.length - 1;
  curve.dispatchEvent(new Event("change"));
  await wait(200);
  const redrawn = loss !== line();
  const choice = document.querySelector("#scatter .choice");
  const said = document.querySelector("#scatter .said");
  const before = said.textContent;
  choice.value = "train_loss";
  choice.dispatchEvent(new Event("change"));
  await wait(200);
  const heads = all("#runs thead th button");
  heads.find((head) => head.textContent === "accuracy").click();
  const first = document.querySelector("#runs tbody tr").textContent;
  const field = document.querySelector("#runs .find");
  field.value = "byol rbfn";
  field.dispatchEvent(new Event("input"));
  const last = all("[data-choose]").at(-1);
  if (last) last.click();
  const blocks = all("[data-set]");
  const hidden = blocks.filter((block) => block.hidden).length;
  if (last) all("[data-choose]")[0].click();
  await wait(100);
  const found = {
    chosen: [hidden, blocks.length - hidden],
    csv, name: saved[1], hovered, overflow, first,
    filtered: all("#runs tbody tr").filter((row) => !row.hidden).length,
    axis: document.querySelector("#plot-scatter-0-0 .xtitle").textContent,
    changed: before !== said.textContent, redrawn,
    sections: all("section").map((section) => section.id),
    plots: all(".plot").length,
    drawn: all(".plot").filter((plot) => plot.querySelector(".main-svg .trace path")).length,
    fits: all(".plot").every((plot) => plot.querySelector(".main-svg").getBoundingClientRect()
      .width <= plot.getBoundingClientRect().width + 1),
    fetched: performance.getEntriesByType("resource").map((entry) => entry.name)
      .filter((name) => !name.startsWith("data:")),
  };
  TELL
});</script>""".replace("TELL", TELL)


def check_in_browser(report, folder: Path, width: int) -> dict[str, Any]:
    """What holds for the report of any study with scores, RBFN heads and two seeds."""
    text = page(report)
    found, complaints = browse(text, PROBE, folder, width)
    assert complaints == []
    assert found["fetched"] == []
    assert found["overflow"] == 0
    assert found["sections"] == list(SECTIONS)
    count = len(material(text)["figures"])
    assert (found["plots"], found["drawn"], found["fits"]) == (count, count, True)
    runs = report.runs
    for name in ("curves-0-0", "scatter-0-0", "importance-0-0"):
        assert any(f"run {run}" in found["hovered"][name] for run in runs["run"])
    assert re.search(r"accuracy \d+\.\d %", found["hovered"]["scatter-0-0"])
    assert "φ" in found["hovered"]["importance-0-0"]
    assert found["name"] == "runs.csv"
    table = pd.read_csv(io.StringIO(found["csv"]))
    assert list(table["run"]) == list(runs["run"])
    np.testing.assert_allclose(table["accuracy"], runs["accuracy"].astype(float), rtol=1e-6)
    assert found["axis"] == "training loss"
    assert found["changed"]
    assert found["redrawn"]
    best = runs.loc[runs["accuracy"].astype(float).idxmax()]
    assert f"{100 * best['accuracy']:.1f}" in found["first"]
    return found


@pytest.mark.parametrize(("width", "study_of"), [(1280, "report"), (600, "two")])
def test_in_a_browser(width, study_of, request, tmp_path) -> None:
    report = request.getfixturevalue(study_of)
    found = check_in_browser(report, tmp_path, width)
    several = len(report.datasets)
    assert found["filtered"] == 6 * several
    hidden, shown = found["chosen"]  # blocks, after one dataset was asked for
    assert hidden == (shown if several > 1 else 0)


def test_the_browser_sees_what_is_wrong(text, tmp_path) -> None:
    """An error and a request, so that the test above can fail."""
    wrong = '<script>throw new Error("thrown on purpose")</script>'
    fetch = '<img src="https://example.org/x.png" alt="">'
    _, complaints = browse(text.replace("<main>", f"<main>{wrong}{fetch}", 1), PROBE, tmp_path)
    assert any("thrown on purpose" in line for line in complaints)
    assert any("example.org" in line for line in complaints)


@pytest.mark.slow
def test_of_a_real_study(tmp_path) -> None:
    """Digits, the preset `quick`: trained, evaluated and scored here."""
    from radial.study.worker import Worker

    store = Store(tmp_path / "study")
    store.create(read_study("quick"))
    Worker(store, session="t", threads=1).work()
    report = read_report(store.path)
    assert len(report.runs) >= 24
    for width in (1280, 600):
        folder = tmp_path / str(width)
        folder.mkdir()
        check_in_browser(report, folder, width)
    write_report(store.path, html=tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 8_000_000
