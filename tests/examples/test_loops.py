"""Other people's training loops with three lines of radial: the best checkpoint is kept by score.

The scripts are in the shape of LightlySSL's and stable-pretraining's examples. They run in this
process, which has loaded what they import; what Lightning advises is not for us.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import radial

LOOPS = Path(__file__).parents[2] / "examples" / "loops"
SCRIPTS = sorted(path.name for path in LOOPS.glob("*.py"))
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def start(script: str) -> dict:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, str(folder)])
        return runpy.run_path(str(LOOPS / script))

    return start


@pytest.mark.parametrize("script", SCRIPTS)
def test_three_lines_are_added(script: str) -> None:
    text = (LOOPS / script).read_text(encoding="utf-8")
    marked = [line for line in text.splitlines() if re.search(r"  # (radial )?\d$", line)]
    assert len(marked) == 3
    used = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    lines = {node.lineno for node in used if node.id in ("radial", "monitor")}
    numbers = {number for number, line in enumerate(text.splitlines(), 1) if line in marked}
    assert lines <= numbers  # there is nothing of radial in any other line


@pytest.mark.parametrize("script", [name for name in SCRIPTS if "pytorch" not in name])
def test_lightning_keeps_the_best_by_the_score(script: str, run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told = run(script)
    trainer = told["trainer"]
    kept = trainer.checkpoint_callback
    events = EventAccumulator(trainer.logger.log_dir)
    events.Reload()
    values = [event.value for event in events.Scalars("view_retrieval")]
    assert len(values) == 3
    best = float(kept.best_model_score)
    assert best == pytest.approx(max(values), rel=1e-6)
    state = torch.load(kept.best_model_path, weights_only=True)
    assert state["epoch"] == values.index(max(values))
    model = told["model"]
    model.load_state_dict(state["state_dict"])
    look = radial.Monitor(told["folder"], image_size=32)
    backbone = model.encoder if "stable" in script else model.backbone
    assert look(backbone)["view_retrieval"] == pytest.approx(best, rel=1e-6)


def test_a_plain_loop_keeps_the_best(run, capsys) -> None:
    told = run("simclr_pytorch.py")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    values = [ast.literal_eval(line)["view_retrieval"] for line in lines]
    assert len(values) == 3
    model = told["model"]
    model.load_state_dict(torch.load("best.pt", weights_only=True))
    look = radial.Monitor(told["folder"], image_size=32)
    assert look(model.backbone)["view_retrieval"] == max(values)
