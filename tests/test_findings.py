"""docs/FINDINGS.md says what the kept results say, and the studies are what it says they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from radial.metrics.registry import SCORES
from radial.study.plan import read_study

ROOT = Path(__file__).parents[1]
STUDIES = {"tune": 30, "heads": 90, "scores": 100, "published": 27}


def test_tables_and_figure_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "studies" / "findings.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_the_results_are_of_the_study(name: str) -> None:
    """Every planned run is there, once, and no other."""
    kept = pd.read_parquet(ROOT / "docs" / "findings" / name / "results.parquet")
    data, weights = (str(kept[column].dropna().unique()[0]) if kept[column].notna().any() else ""
                     for column in ("data", "weights"))  # fmt: skip
    changes = [f"data={data}", *([f"weights={weights}"] if weights else [])]
    planned = [run.id for run in read_study(ROOT / "studies" / f"{name}.yaml", changes).runs()]
    assert len(planned) == STUDIES[name]
    assert sorted(kept["run"]) == sorted(planned)


def test_every_page_that_is_linked_is_there() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("[A-Z]*.md"))):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_nothing_is_left_to_fill_in() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("[A-Z]*.md"))):
        text = re.sub(r"(?<!`)`[^`\n]+`(?!`)", "", page.read_text(encoding="utf-8"))
        assert re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|^[A-Z]{4,}$", text, flags=re.MULTILINE) == []


def test_the_readme_is_short_and_counts_right() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| {len(SCORES)}, with intervals |" in text
    assert len(text.splitlines()) < 150
