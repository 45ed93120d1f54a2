"""`make demo`: the published head beside a live one, trained for a minute on embedded digits.

SimCLR from scratch on scikit-learn's digits with three projection heads. Shows what
`diagnose` says before the first step, the loss, and what a logistic regression makes of the
frozen backbone afterwards.
"""

from __future__ import annotations

import argparse
import html
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from radial.calibration import calibrate
from radial.heads import RBFNProjectionHead, default_head
from radial.health import HealthReport, diagnose
from radial.optim import parameter_groups

BATCH, FEATURES, HIDDEN, OUTPUT, TEMPERATURE = 256, 64, 512, 64, 0.5
CONSTANT_LOSS = math.log(2 * BATCH - 1)  # of NT-Xent when all outputs are the same


@dataclass(frozen=True, kw_only=True)
class Contender:
    label: str
    color: str
    head: Callable[[], nn.Module]
    calibrated: bool = False


CONTENDERS = (
    Contender(
        label="RBFN as published",
        color="#c0392b",
        head=lambda: RBFNProjectionHead.paper(FEATURES, HIDDEN, OUTPUT, 2, num_kernels=128),
    ),
    Contender(
        label="MLP (LightlySSL's SimCLR head)",
        color="#7f8c8d",
        head=lambda: default_head("simclr", FEATURES, HIDDEN, OUTPUT),
    ),
    Contender(
        label="RBFN of radial",
        color="#2471a3",
        head=lambda: RBFNProjectionHead(FEATURES, HIDDEN, OUTPUT, 2, num_kernels=128),
        calibrated=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    contender: Contender
    report: HealthReport
    losses: list[float]
    accuracy: float


def backbone() -> nn.Sequential:
    """Three convolutions: enough for digits, a second or two on a CPU."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(1, 16), *block(16, 32), *block(32, FEATURES)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def views(images: Tensor, generator: Generator) -> Tensor:
    """Random crop, stretch and shear of each image, with noise; parameters per sample."""
    n = len(images)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator)

    zoom, stretch = uniform(0.6, 1.0), uniform(0.8, 1.25)
    rows = [
        torch.stack([zoom * stretch, uniform(-0.3, 0.3), uniform(-0.3, 0.3)], 1),
        torch.stack([uniform(-0.3, 0.3), zoom / stretch, uniform(-0.3, 0.3)], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, align_corners=False)
    return moved + 0.1 * torch.randn(moved.shape, generator=generator)


def run(contender: Contender, data: dict[str, Tensor], steps: int, seed: int) -> Outcome:
    """Diagnose, train with NT-Xent, then fit a logistic regression on the frozen backbone."""
    from lightly.loss.ntx_ent_loss import NTXentLoss

    torch.manual_seed(seed)
    generator = Generator().manual_seed(seed)
    images = data["train"]
    net, head = backbone(), contender.head()
    with torch.no_grad():
        start = net(views(images[: 4 * BATCH], generator))
    if contender.calibrated:
        calibrate(head, start)
    report = diagnose(head, start)
    groups = parameter_groups(nn.ModuleList([net, head]), lr=0.1, weight_decay=1e-4)
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    criterion = NTXentLoss(temperature=TEMPERATURE)
    losses = []
    for _ in range(steps):
        batch = images[torch.randperm(len(images), generator=generator)[:BATCH]]
        z = head(net(torch.cat([views(batch, generator), views(batch, generator)])))
        loss = criterion(*z.chunk(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    accuracy = probe(net, data)
    return Outcome(contender=contender, report=report, losses=losses, accuracy=accuracy)


def probe(net: nn.Module, data: dict[str, Tensor]) -> float:
    """Accuracy of a logistic regression on the frozen backbone's standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    net.eval()
    with torch.no_grad():
        train, test = net(data["train"]).numpy(), net(data["test"]).numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return float(model.fit(train, data["train_labels"]).score(test, data["test_labels"]))


def digits() -> dict[str, Tensor]:
    """scikit-learn's 1,797 digits at 16×16, 70 % for training."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x, y, train_size=0.7, stratify=y, random_state=42)
    train, test, train_labels, test_labels = (torch.as_tensor(part) for part in parts)

    def enlarge(flat: Tensor) -> Tensor:
        images = flat.float().reshape(-1, 1, 8, 8) / 16.0
        return F.interpolate(images, size=16, mode="bilinear", align_corners=False)

    return {
        "train": enlarge(train),
        "test": enlarge(test),
        "train_labels": train_labels,
        "test_labels": test_labels,
    }


COLUMNS = ("head", "before training", "dead kernels", "gradient gain", "last loss", "accuracy")


def rows(outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    return [
        (
            outcome.contender.label,
            outcome.report.status,
            f"{outcome.report.dead_kernels:.0%}" if outcome.report.layers else "–",
            f"{outcome.report.gradient_gain:.3g}",
            f"{mean(outcome.losses[-10:]):.3f}",
            f"{outcome.accuracy:.1%}",
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
        line = {"color": outcome.contender.color, "width": 2.5}
        plot.add_scatter(y=outcome.losses, name=outcome.contender.label, line=line, mode="lines")
    plot.add_hline(
        y=CONSTANT_LOSS,
        line={"dash": "dot", "color": "#555"},
        annotation_text=f"loss of a constant output, ln {2 * BATCH - 1} = {CONSTANT_LOSS:.2f}",
        annotation_position="top right",
    )
    plot.update_layout(
        template="plotly_white",
        xaxis_title="step",
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


def page(outcomes: list[Outcome], untrained: float, steps: int, seed: int) -> str:
    def line(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    published, mlp, ours = (outcome.accuracy for outcome in outcomes)
    verdicts = "".join(
        f"<li>{html.escape(outcome.contender.label)}: "
        f"<code>{html.escape(outcome.report.verdict)}</code></li>"
        for outcome in outcomes
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>radial: demo</title>
<style>{STYLE}</style>
<h1>One head is dead, one is alive</h1>
<p>SimCLR from scratch on scikit-learn's digits, {steps} steps of batch {BATCH}, seed {seed}: the
same backbone, data and optimiser with three projection heads. The published Gaussian RBFN head
gives every image the same output and its loss never moves; the RBFN head of radial trains.
Logistic regression on the frozen backbone reaches {ours:.1%} with it, {mlp:.1%} with the MLP head
and {published:.1%} with the published one; {untrained:.1%} on the untrained backbone. One seed
each.</p>
<table>{line(COLUMNS, "th")}{"".join(line(row, "td") for row in rows(outcomes))}</table>
<h2>The loss says it</h2>
{figure(outcomes).to_html(full_html=False, include_plotlyjs=True)}
<h2>What <code>radial.diagnose</code> said before the first step</h2><ul>{verdicts}</ul>
</html>
"""


def write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m radial.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the report")
    parser.add_argument("--steps", type=int, default=300, help="training steps a head")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps must be at least 1, not {options.steps}")
    torch.set_flush_denormal(True)  # the dead head's activations are: 20 times slower on a CPU
    data, outcomes = digits(), []
    torch.manual_seed(options.seed)
    untrained = probe(backbone(), data)
    for contender in CONTENDERS:
        begin = time.perf_counter()
        outcomes.append(run(contender, data, options.steps, options.seed))
        took = time.perf_counter() - begin
        print(f"{contender.label}: {outcomes[-1].report.verdict}; trained in {took:.0f} s")
    path = options.out / "report.html"
    write_atomically(path, page(outcomes, untrained, options.steps, options.seed))
    print(f"\n{table(outcomes)}\nuntrained backbone: {untrained:.1%}\n\nreport: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
