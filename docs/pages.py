"""Pages of the site that are written from the code, so that they cannot drift: a hook of mkdocs.

A page a score (registry, docstring, findings, failures), a page a method (docstring, defaults,
views, heads, findings), the reference of everything public, and what stands at the top of the
repository. A score or method without docstring stops the build.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import radial
import radial.data
import radial.methods
import radial.metrics
from radial.data.augmentations import recipe
from radial.methods import METHODS
from radial.metrics.compute import COMPUTE
from radial.metrics.registry import SCORES, ScoreInfo
from radial.rbf.heads import DEFAULT_HEADS
from radial.training.config import DEFAULTS, PAPER

ROOT = Path(__file__).parents[1]
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
MODULES = {"radial": radial, "radial.metrics": radial.metrics,
           "radial.methods": radial.methods, "radial.data": radial.data}  # fmt: skip
TITLES = {"simclr": "SimCLR", "moco": "MoCo v2", "byol": "BYOL", "swav": "SwAV",
          "simsiam": "SimSiam", "nnclr": "NNCLR", "dino": "DINO", "barlow_twins": "Barlow Twins",
          "vicreg": "VICReg"}  # fmt: skip  # as FINDINGS spells them
NEEDS = {
    "kernels": "the kernels of an RBFN head; no images",
    "features": "features of unlabelled images",
    "views": "features of several views of each image",
    "recipes": "features of several views of each image by each of three recipes",
    "start_views": "features of several views of each image, from the network and from its start",
    "rotations": "features of each image in four turns",
    "nearest": "the nearest kernel of several views of each image",
    "activations": "the kernels' activations of several views of each image",
    "distances": "the distances to the kernels of several views of each image",
}
ARROWS = {"higher": "↑ higher is better", "lower": "↓ lower is better", "near 1": "≈ near 1"}


def on_config(config: Any) -> Any:
    """Names the written pages in the navigation, below what mkdocs.yml has."""
    below = {next(iter(entry)): entry for entry in config.nav if isinstance(entry, dict)}
    below["Scores"]["Scores"] += [{name: f"scores/{name}.md"} for name in SCORES]
    below["Methods"]["Methods"] += [{name: f"methods/{name}.md"} for name in METHODS]
    below["Reference"]["Reference"] += [{name: f"reference/{name}.md"} for name in MODULES]
    return config


def on_files(files: Files, config: Any) -> Files:
    pages = {f"scores/{name}.md": score_page(info) for name, info in SCORES.items()}
    pages |= {f"methods/{name}.md": method_page(name) for name in METHODS}
    pages |= {f"reference/{name}.md": reference_page(name) for name in MODULES}
    pages["scores/index.md"], pages["methods/index.md"] = scores_page(), methods_page()
    pages["house.md"] = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name, text in pages.items():
        if name.startswith("scores/"):
            text = text.replace("docs/FINDINGS.md", "[the findings](../FINDINGS.md)")
        files.append(File.generated(config, name, content=text))
    return files


class Examples(griffe.Extension):
    """griffe knows the section by its plural only."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that lead out of docs/ go to the repository."""
    markdown = markdown.replace("](findings)", f"]({HOME}/tree/main/docs/findings)")
    return re.sub(r"\]\((?:\.\./)+((?:benchmarks|examples|studies|src)\b[^)]*)\)",
                  rf"]({HOME}/blob/main/\1)", markdown)  # fmt: skip


def score_page(info: ScoreInfo) -> str:
    at_most = "" if info.at_most is None else f"; at most {info.at_most:,} of them"
    facts = {
        "direction": ARROWS[info.better],
        "needs": NEEDS[info.needs] + at_most,
        "read from": ", ".join(f"`{info.name}@{layer}`" for layer in info.layers),
        "settings": info.settings,
        "reference": re.sub(r"(https://\S+?)(?=[;,]?(?:\s|$))", r"<\1>", info.reference),
    }
    table = listed(facts)
    functions = functions_of(info.name)
    told = "\n\n".join(f"### `radial.metrics.{n}`\n\n{prose(f)}" for n, f in functions.items())
    return f"""# {info.name}

{info.description[0].upper()}{info.description[1:]}.

{table}

```console
$ radial score runs/a runs/b --data folder:photos --scores {info.name}
```

## What it is

{told}

## What the findings say

{findings(info)}

## When it fails

{failures(info.name)}
"""


def listed(facts: dict[str, str]) -> str:
    first, *rest = (f"| {key} | {value} |" for key, value in facts.items())
    return "\n".join([first, "|---|---|", *rest])


def functions_of(name: str) -> dict[str, Any]:
    """The plain functions of radial.metrics that a score calls, found in what computes it."""
    used = inspect.getclosurevars(COMPUTE[name])
    called = {id(v) for v in [*used.nonlocals.values(), *used.globals.values()] if callable(v)}
    found = {
        public: value
        for public in radial.metrics.__all__
        if id(value := getattr(radial.metrics, public)) in called and inspect.isfunction(value)
    }
    if not found:
        raise PluginError(f"the score {name} calls no public function of radial.metrics")
    return found


def prose(value: Any) -> str:
    """A docstring up to its arguments, which the reference lists."""
    text = inspect.getdoc(value)
    if not text:
        raise PluginError(f"{value.__qualname__} has no docstring")
    return re.split(r"^(?:Args|Attributes|Returns|Raises|Example):$", text, flags=re.M)[0].strip()


def rows(page: str, heading: str) -> tuple[list[str], dict[str, list[str]]]:
    """The first table below a heading of a page: its head, and its rows by their first cell."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(heading)[2]
    lines = re.search(r"(?:^\|.*\n)+", text, flags=re.M)[0].splitlines()  # type: ignore[index]
    cells = [line.replace("\\", "").split("|")[1:-1] for line in lines]
    head, _, *body = [[cell.strip("* ") for cell in line] for line in cells]
    assert all(len(line) == len(head) for line in body), page
    return head, {line[0]: line[1:] for line in body}


def findings(info: ScoreInfo) -> str:
    for table, of in (("every", "registered runs of nine methods"),
                      ("challenger", "registered runs whose weights were kept"),
                      ("kernel-scores", "runs of three methods, sixty in all")):  # fmt: skip
        head, known = rows("FINDINGS-TABLES.md", f"<!-- {table} -->")
        body = [[k, *cells] for k, cells in known.items()
                if k.strip("`").split("@")[0] == info.name]  # fmt: skip
        if body:
            lines = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body)]
            return "\n".join([
                f"Rank correlation ρ with accuracy within methods, small {of} that no score was",
                "chosen on: [what was measured, and its limits](../FINDINGS.md).", "", *lines,
            ])  # fmt: skip
    return "Not among the scores of the findings."


def failures(name: str) -> str:
    head, known = rows("FAILURES.md", "# ")
    cells = known.get(f"`{name}`")
    if cells is None:
        return "Not yet tried on features that should fool it."
    *values, misled = cells
    misled = misled or "nothing that was tried"
    table = [f"| {' | '.join(line)} |" for line in (head[1:-1], ["---:"] * (len(head) - 2), values)]
    return "\n".join([
        f"Misled by: {misled}. On features that are known to be good or bad",
        "([what they are](../FAILURES.md)):", "", *table,
    ])  # fmt: skip


def method_page(name: str) -> str:
    kind = METHODS[name]
    views = recipe(name, 224)
    head = DEFAULT_HEADS[name, "projection"]
    facts = {
        "views at 224 px": f"{len(views)}: {', '.join(sorted({f'{v.size} px' for v in views}))}",
        "LightlySSL's head": f"{head.head}, hidden {head.hidden_dim}, out {head.output_dim}",
        "prediction head": "yes" if kind.predicts else "no",
        "labels": "yes: an anchor to compare with" if kind.labelled else "no",
        "defaults from scratch": settings(DEFAULTS[name]),
        "`--preset paper`": settings(PAPER[name]) if name in PAPER else "–",
        "loss of a constant output": constant(kind),
    }
    table = listed(facts)
    return f"""# {TITLES.get(name, kind.__name__)}

{prose(kind)}

```console
$ radial train --method {name} --head rbfn --data folder:photos --epochs 100
```

{table}

Arguments: [`radial.methods.{kind.__name__}`](../reference/radial.methods.md).

## What the findings say

{method_findings(name)}
"""


def settings(values: Any) -> str:
    return ", ".join(f"`{key}` {value}" for key, value in values.items())


def constant(kind: Any) -> str:
    """Its closed form, as the class says it."""
    return (inspect.getdoc(kind.constant_loss) or "").splitlines()[0]


def method_findings(name: str) -> str:
    if name not in TITLES:
        return "Not among the methods of the findings."
    head, known = rows("FINDINGS.md", "<!-- arms -->")
    table = [f"| {' | '.join(line)} |" for line in
             (head[1:], ["---"] * (len(head) - 1), known[TITLES[name]])]  # fmt: skip
    return "\n".join([
        "Accuracy in percent by projection head, three seeds, ten epochs from scratch at 16 px",
        "([how, and its limits](../FINDINGS.md)):", "", *table,
    ])  # fmt: skip


def scores_page() -> str:
    head = ["| score | | needs | what |", "|---|---|---|---|"]
    lines = [
        f"| [{s.name}]({s.name}.md) | {ARROWS[s.better][0]} | {s.needs} | {s.description} |"
        for s in SCORES.values()
    ]
    return "\n".join([
        "# Scores", "",
        "`radial score` ranks by [view_retrieval](view_retrieval.md), which the",
        "[findings](../FINDINGS.md) chose on two methods and tested on nine; what each",
        "score says of bad features is in [FAILURES](../FAILURES.md).", "", *head, *lines,
    ])  # fmt: skip


def methods_page() -> str:
    lines = [f"| [{TITLES.get(n, k.__name__)}]({n}.md) | {prose(k).splitlines()[0]} |"
             for n, k in METHODS.items()]  # fmt: skip
    return "\n".join(["# Methods", "", "| `--method` | loss |", "|---|---|", *lines])


def reference_page(name: str) -> str:
    module = MODULES[name]
    names = [n for n in module.__all__ if not inspect.ismodule(getattr(module, n))]
    entries = [f"::: {name}.{n}" for n in names]
    return "\n\n".join([f"# {name}", (module.__doc__ or "").strip(), *entries])
