"""`make demo`: the published head, LightlySSL's and radial's, trained on embedded digits.

SimCLR from scratch on scikit-learn's digits by `radial train` with three projection heads: what
`diagnose` says before the first step, the loss, the guard's verdict, and what a logistic
regression makes of the frozen backbone afterwards.
"""

from __future__ import annotations

import argparse
import html
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from radial.data import Data, load_data
from radial.evaluation.probe import probe_backbone
from radial.files import write_atomically
from radial.training.building import build
from radial.training.checkpoint import LAST, part, read_checkpoint
from radial.training.config import RunConfig
from radial.training.directory import METRICS, RunResult
from radial.training.progress import Metrics
from radial.training.run import train

HEADS = {  # head: label, colour
    "rbfn-paper": ("RBFN as published", "#c0392b"),
    "default": ("MLP (LightlySSL's SimCLR head)", "#7f8c8d"),
    "rbfn": ("RBFN of radial", "#2471a3"),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    head: str
    result: RunResult
    losses: list[float]  # one an epoch
    accuracy: float

    @property
    def label(self) -> str:
        return HEADS[self.head][0]


def config(head: str, epochs: int, seed: int, out: Path) -> RunConfig:
    return RunConfig(
        method="simclr",
        head=head,
        data="digits",
        backbone="resnet9-w0.125",
        hidden_dim=512,
        batch_size=128,
        epochs=epochs,
        seed=seed,
        out=str(out / head),
    )


def run(head: str, epochs: int, seed: int, out: Path, data: Data, console: Console) -> Outcome:
    """Train with one head, then fit a logistic regression on the frozen backbone."""
    chosen = config(head, epochs, seed, out)
    result = train(chosen, overwrite=True, console=console)
    method = build(chosen).method
    method.load_state_dict(part(read_checkpoint(chosen.directory / LAST)["state_dict"], "method."))
    metrics = Metrics(chosen.directory / METRICS)
    metrics.read(epochs)
    losses = [float(row["train_loss"]) for row in metrics.rows]
    accuracy = probe_backbone(method.backbone, data).accuracy
    return Outcome(head=head, result=result, losses=losses, accuracy=accuracy)


COLUMNS = ("head", "before training", "verdict", "last loss", "accuracy", "seconds")


def rows(outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    return [
        (
            outcome.label,
            outcome.result.head_health.split(":")[0],
            outcome.result.verdict,
            f"{outcome.losses[-1]:.3f}",
            f"{outcome.accuracy:.1%}",
            f"{outcome.result.seconds:.0f}",
        )
        for outcome in outcomes
    ]


def table(outcomes: list[Outcome]) -> str:
    lines = [COLUMNS, *rows(outcomes)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths)) for line in lines)


def figure(outcomes: list[Outcome]) -> Any:
    from plotly import graph_objects as go

    plot = go.Figure()
    for outcome in outcomes:
        line = {"color": HEADS[outcome.head][1], "width": 2.5}
        epochs = list(range(1, len(outcome.losses) + 1))
        plot.add_scatter(x=epochs, y=outcome.losses, name=outcome.label, line=line, mode="lines")
    constant = outcomes[0].result.constant_loss
    plot.add_hline(
        y=constant,
        line={"dash": "dot", "color": "#555"},
        annotation_text=f"loss of a constant output: {constant:.2f}",
        annotation_position="top right",
    )
    plot.update_layout(
        template="plotly_white",
        xaxis_title="epoch",
        yaxis_title="NT-Xent loss",
        height=420,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"orientation": "h", "y": 1.12},
    )
    return plot


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .4rem .6rem; text-align: left }
th { border-bottom: 2px solid #444 } td { border-bottom: 1px solid #ddd } code { color: #444 }
"""


def page(outcomes: list[Outcome], untrained: float, epochs: int, seed: int) -> str:
    def line(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    published, mlp, ours = (outcome.accuracy for outcome in outcomes)
    verdicts = "".join(
        f"<li>{html.escape(outcome.label)}: <code>{html.escape(outcome.result.head_health)}</code>"
        for outcome in outcomes
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>radial: demo</title>
<style>{STYLE}</style>
<h1>One head is dead, one is alive</h1>
<p>SimCLR from scratch on scikit-learn's digits, {epochs} epochs, seed {seed}: the same backbone,
data and optimiser with three projection heads. The published Gaussian RBFN head gives every
image the same output and its loss never moves; the RBFN head of radial trains. Logistic
regression on the frozen backbone reaches {ours:.1%} with it, {mlp:.1%} with the MLP head and
{published:.1%} with the published one; {untrained:.1%} on the untrained backbone. One seed
each.</p>
<table>{line(COLUMNS, "th")}{"".join(line(row, "td") for row in rows(outcomes))}</table>
<h2>The loss says it</h2>
{figure(outcomes).to_html(full_html=False, include_plotlyjs=True)}
<h2>What <code>radial.diagnose</code> said before the first step</h2><ul>{verdicts}</ul>
</html>
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m radial.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the report")
    parser.add_argument("--epochs", type=int, default=20, help="training epochs a head")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, not {options.epochs}")
    console, data = Console(), load_data("digits")
    backbone = build(config("default", 1, options.seed, options.out)).method.backbone
    untrained = probe_backbone(backbone, data).accuracy
    outcomes = [
        run(head, options.epochs, options.seed, options.out, data, console) for head in HEADS
    ]
    path = options.out / "report.html"
    write_atomically(path, page(outcomes, untrained, options.epochs, options.seed))
    print(f"\n{table(outcomes)}\nuntrained backbone: {untrained:.1%}\n\nreport: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
