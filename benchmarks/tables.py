"""The performance tables of README.md and docs/costs.md, written from benchmarks/results/*.json.

    python benchmarks/tables.py

A row is the ratio of two figures of one run; below 1 is better. A benchmark without a file has no
row. The test of this script compares the pages with the files.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = {ROOT / "README.md": True, ROOT / "docs" / "costs.md": False}  # whether only the main rows
START = "<!-- performance: python benchmarks/tables.py -->\n"
END = "<!-- performance: end -->"
BLOCK = re.compile(f"{re.escape(START)}.*?{re.escape(END)}", re.S)
Figures = Mapping[str, Any]
Value = Callable[[Figures], float | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is measured against what, and where its figures are."""

    against: str
    shape: str
    file: str  # results/FILE.json, by benchmarks/FILE.py
    time: Value
    memory: Value = lambda _: None
    main: bool = True  # in the README too


def _layer(what: str, key: str, shape: str, against: str = "MLP") -> Value:
    return lambda figures: figures[shape][key][what] / figures[shape][key][against]


def _speed(ours: str, theirs: str) -> Value:
    """Of images a second: time is what it is the inverse of."""
    return lambda f: f["images_per_second"][theirs] / f["images_per_second"][ours]


def _mlp(shape: str, *, main: bool = False) -> Row:
    b, d, k = shape.split("/")
    return Row(
        against="MLP block (Linear, ReLU, Linear)", shape=f"B={b} D={d} K={k}", file="rbf_layer",
        time=_layer("RBFLayer", "seconds", shape), memory=_layer("RBFLayer", "peak", shape),
        main=main,
    )  # fmt: skip


ROWS = (
    _mlp("256/2048/512", main=True),
    _mlp("512/512/128"),
    _mlp("2048/2048/128"),
    Row(
        against="RBF layer by broadcasting, as published", shape="B=256 D=2048 K=512",
        file="rbf_layer", time=_layer("RBFLayer", "seconds", "256/2048/512", "broadcast"),
        memory=_layer("RBFLayer", "peak", "256/2048/512", "broadcast"),
    ),
    Row(
        against="SNS by masked `torch.cdist`", shape="K=4096 D=2048", file="sns", main=False,
        time=lambda f: f["seconds"]["radial.sns"] / f["seconds"]["masked cdist"],
        memory=lambda f: f["peak"]["radial.sns"] / f["peak"]["masked cdist"],
    ),
    Row(
        against="LightlySSL's SimCLR example, 2 workers", shape="32 px, batch 256, 2 cores",
        file="training", time=_speed("radial train, compiled", "LightlySSL's example"),
    ),
    *(
        Row(
            against="the same, JPEG files", shape=f"{size} px, {network}, {epoch}",
            file="photographs", main=epoch == "later epochs",
            time=lambda f, size=size, epoch=epoch: f[size]["LightlySSL's example"] / f[size][epoch],
        )
        for size, network in (("64", "ResNet-9"), ("224", "ResNet-18"))
        for epoch in ("first epoch", "later epochs")
    ),
    Row(
        against="training step with `--head mlp`", shape="K=128, 32 px, batch 256",
        file="training", main=False,
        time=lambda f: f["step_seconds"]["rbfn"] / f["step_seconds"]["mlp"],
    ),
    *(
        Row(
            against="a look of the monitor: training between two", shape=case, file="monitor",
            time=lambda f, case=case: f[case]["share"], main=main,
        )
        for case, main in (
            ("32 px, ResNet-9, an epoch of 45,000", True),
            ("224 px, ResNet-18, 200 steps", True),
            ("224 px, ResNet-18, an epoch of 126,689", False),
        )
    ),
    Row(
        against="LightlySSL's SimCLR transform, 1 core", shape="32 px", file="views",
        time=lambda f: f["32"]["lightly"] / f["32"]["radial"],
    ),
    Row(
        against="LightlySSL's SimCLR transform, 1 core", shape="224 px", file="views",
        time=lambda f: f["224"]["lightly"] / f["224"]["radial"],
    ),
    Row(
        against="nine spectral scores: one `torch.linalg.svdvals`", shape="25,600 × 2048",
        file="metrics", time=lambda f: f["spectral"]["time"],
        memory=lambda f: f["spectral"]["peak"],
    ),
    Row(
        against="all scores of features and views: one `svdvals`", shape="25,600 × 2048",
        file="metrics", time=lambda f: f["together"]["ratio"],
    ),
    Row(
        against="the same with views of 1,024 images, the default", shape="25,600 × 2048",
        file="metrics", time=lambda f: f["together, default views"]["ratio"], main=False,
    ),
    *(
        Row(
            against=f"`{score}`: `lidar`", shape="1,024 images × 4 views, 512 wide", main=False,
            file="metrics", time=lambda f, score=score: f["rivals"]["time beside lidar"].get(score),
        )
        for score in ("view_retrieval", "view_retrieval_recipes", "acr", "arc", "garc_mean",
                      "info_nce", "info_nce_whitened", "rotation_probe", "cluster_learnability",
                      "kmeans_agreement")
    ),
    Row(
        against="exact probe: the paper's 200 epochs", shape="5,000 × 2048, 100 classes",
        file="probe", time=lambda f: f["seconds"]["one"] / f["seconds"]["paper"],
    ),
    Row(
        against="exact probe: scikit-learn to the same optimum", shape="5,000 × 2048, 100 classes",
        file="probe", time=lambda f: f["seconds"]["fit"] / f["seconds"]["scikit-learn"],
    ),
    Row(
        against="`from radial import RBFNProjectionHead`: `import torch`", shape="new process",
        file="startup", main=False,
        time=lambda f: f["seconds"]["import a head"] / f["seconds"]["import torch"],
    ),
    Row(
        against="Open Images sampling: pandas", shape="20 million labels", file="open_images",
        main=False,
        time=lambda f: f["seconds"]["radial"] / f["seconds"]["pandas"],
        memory=lambda f: f["peak"]["radial"] / f["peak"]["pandas"],
    ),
)  # fmt: skip


def ratio(value: float | None) -> str:
    """``1.16×``, and of small ones two figures: ``0.0051×``."""
    if value is None:
        return ""
    return f"{value:.2f}×" if value >= 0.095 else f"{value:.2g}×"


def table(*, main: bool, results: Path = RESULTS) -> str:
    """In Markdown, of the rows whose file is there; with ``main`` those of the README."""
    found = {path.stem: json.loads(path.read_bytes()) for path in results.glob("*.json")}
    lines = ["| against | shape | time | peak memory | command |", "|---|---|---|---|---|"]
    before = ""
    for row in ROWS:
        if row.file not in found or (main and not row.main):
            continue
        figures, command = found[row.file]["figures"], f"`{found[row.file]['command']}`"
        cells = [row.against, row.shape, ratio(row.time(figures)), ratio(row.memory(figures))]
        lines.append(f"| {' | '.join(cells)} | {command if row.file != before else ''} |")
        before = row.file
    return "\n".join(lines)


def written(text: str, *, main: bool, results: Path = RESULTS) -> str:
    """A page with its table as the files have it."""
    if not BLOCK.search(text):
        raise ValueError(f"no place for the table: {START.strip()}")
    content = table(main=main, results=results)
    return BLOCK.sub(lambda _: f"{START}\n{content}\n\n{END}", text)


def main() -> int:
    for page, only in PAGES.items():
        page.write_text(written(page.read_text(encoding="utf-8"), main=only), encoding="utf-8")
        print(f"written: {page.relative_to(ROOT)}")
    missing = sorted({row.file for row in ROWS if not (RESULTS / f"{row.file}.json").is_file()})
    for name in missing:
        print(f"not measured: python benchmarks/{name}.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
