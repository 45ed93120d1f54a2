"""Train, score and evaluate on a device that refuses float64, mixed devices and decompositions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from radial.methods import METHODS

SCRIPT = Path(__file__).parents[1] / "strict_device.py"


def on_strict_device(work: Path, *methods: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(work), *methods],
        env=os.environ | {"RADIAL_DATA": str(work / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_commands_pass_and_mistakes_do_not(tmp_path: Path) -> None:
    told = on_strict_device(tmp_path, "simclr")
    for name in ("float64", "mixed", "linalg"):  # it can fail: our code with such a mistake does
        assert told[name] != "passed"
    assert "float64 on strict" in told["float64"]
    assert "on the CPU beside strict" in told["mixed"]
    for name in ("train", "score", "bf16", "eval"):
        result = told[f"simclr {name}"]
        assert result["code"] == 0
        assert result["convolutions"] > 50, "it was computed elsewhere"


@pytest.mark.slow
def test_every_method(tmp_path: Path) -> None:
    others = [name for name in METHODS if name != "simclr"]
    told = on_strict_device(tmp_path, *others)
    assert {
        told[f"{method} {name}"]["code"] for method in others for name in ("train", "eval")
    } == {0}
