"""A small part of `make attack`, in every run of the tests; see docs/ATTACK.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "ATTACK.md"


def attacked(*options: str) -> str:
    """In a process of its own: one that has used torch must not fork."""
    command = [sys.executable, str(HERE / "attack.py"), "--no-write", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_share_of_the_attack_breaks_nothing() -> None:
    told = attacked("--share", "0.02", "--only", "train,worker,plan,checkpoint,table")
    rows = re.findall(r"^\| .*? \| ([\d,]+) \|.*\| (\d+) \|$", told, flags=re.MULTILINE)
    assert len(rows) == 5
    assert all(int(tries) > 0 and broken == "0" for tries, broken in rows), told


@pytest.mark.slow
def test_a_larger_share_of_the_attack_breaks_nothing() -> None:
    attacked("--share", "0.1")
