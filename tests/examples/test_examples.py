"""The tutorials run as a reader runs them: as scripts, from another directory, on small images."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from radial import load_kernels
from radial.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path / "cache"))


def run(script: str, *arguments: str | Path) -> str:
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_swapped_heads_train_and_are_scored(folder: Path, tmp_path: Path) -> None:
    small = ["--data", f"folder:{folder}", "--epochs", "1", "--batch-size", "32"]
    printed = {head: run("swap_a_head.py", "--head", head, *small) for head in ("mlp", "rbfn")}
    for head, text in printed.items():
        assert text.startswith("alive\n")
        assert re.search(r"^epoch 1: loss \d\.\d{3}$", text, flags=re.MULTILINE)
        assert text.endswith(f"wrote swapped-{head}.ckpt\n")
    assert load_kernels("swapped-rbfn.ckpt")[-1].centers.shape == (128, 256)

    flags = ["--data", f"folder:{folder}", "--image-size", "32", "--backbone", "resnet9-w0.125"]
    names = [f"swapped-{head}.ckpt" for head in printed]
    assert main(["score", *names, *flags, "--scores", "lidar,center_rank", "--json", "c.json"]) == 0
    cards = {card["target"]: card for card in json.loads(Path("c.json").read_text())["cards"]}
    for name in names:  # the head was found too, not the backbone alone
        assert "lidar@projector" in {f"{s['name']}@{s['layer']}" for s in cards[name]["scores"]}


def test_checkpoints_are_ranked_and_a_dead_one_is_not(folder: Path) -> None:
    text = run("rank_checkpoints.py", "--data", f"folder:{folder}", "--check")
    header, *rows = text.splitlines()[:5]
    assert header.split()[:3] == ["rank", "target", "view_retrieval@backbone"]
    assert {row.split()[1] for row in rows} == {"default", "rbfn", "rbfn-short", "published"}
    assert re.match(r" *– +published .* dead head ", rows[-1])
    assert re.search(r"^best: \S+(,|;) ", text, flags=re.MULTILINE)
    assert "published: not ranked: dead head" in text
    assert text.count("exact") >= 4  # with --check the accuracies as well


@pytest.mark.parametrize("labelled", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_folder_is_studied(folder: Path, tmp_path: Path, labelled: bool) -> None:
    images = folder
    if not labelled:
        images = tmp_path / "flat"
        images.mkdir()
        for number, file in enumerate(sorted(folder.rglob("*.png"))):
            shutil.copy(file, images / f"{number:03}.png")
    small = ["--epochs", "1", "--backbone", "resnet9-w0.0625", "--workers", "1"]
    seeds = ["--seeds", "2" if labelled else "1"]
    text = run("study_your_folder.py", images, *small, *seeds, "--out", "mine")
    assert Path("mine/report.html").read_text(encoding="utf-8").startswith("<!")
    assert len(list(Path("mine/runs").glob("*/scores.json"))) == (4 if labelled else 2)
    if labelled:
        simclr = next(line.split() for line in text.splitlines() if line.startswith("simclr "))
        pairs, default, rbfn, difference, low, high = map(float, simclr[1:])
        assert pairs == 2
        assert difference == pytest.approx(rbfn - default, abs=2e-3)
        assert low <= difference <= high
    else:
        assert "view_retrieval@backbone" in text


def test_every_script_is_in_the_readme_and_short() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) == 3
    for script in SCRIPTS:
        assert f"$ python examples/{script}" in readme
        assert len((EXAMPLES / script).read_text(encoding="utf-8").splitlines()) < 100
