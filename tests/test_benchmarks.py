"""The figures on the pages are those of benchmarks/results, and every benchmark leaves its file."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
BY_HAND = {"learning", "liveness"}  # an hour each; their figures are tables of their own
NO_BENCHMARK = {"measure", "tables"}


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", BENCHMARKS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tables"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_pages_are_as_the_files_have_it(tables) -> None:
    for page, only in tables.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert tables.written(text, main=only) == text, "run python benchmarks/tables.py"


def test_rows_are_of_the_figures(tables, tmp_path: Path) -> None:
    figures = {"seconds": {"radial.sns": 2.0, "masked cdist": 8.0}, "peak": {}}
    figures["peak"] = {"radial.sns": 1.0, "masked cdist": 200.0}
    content = {"command": "python benchmarks/sns.py", "figures": figures}
    (tmp_path / "sns.json").write_text(json.dumps(content))
    lines = tables.table(main=False, results=tmp_path).splitlines()
    cells = ("SNS by masked `torch.cdist`", "K=4096 D=2048", "0.25×", "0.005×")
    row = f"| {' | '.join(cells)} | `python benchmarks/sns.py` |"
    assert lines[2:] == [row]
    assert tables.table(main=True, results=tmp_path).splitlines() == lines[:2]  # not in the README
    page = f"before\n{tables.START}old\n{tables.END}after"
    assert row in tables.written(page, main=False, results=tmp_path)
    assert "old" not in tables.written(page, main=False, results=tmp_path)
    with pytest.raises(ValueError, match="no place for the table"):
        tables.written("nothing", main=True)


RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_file_says_how_to_have_it_again(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["command"].startswith(f"python benchmarks/{path.stem}.py")
    assert (BENCHMARKS / f"{path.stem}.py").is_file()
    assert {"commit", "versions", "threads", "cores", "load", "figures", "goals"} <= set(found)
    for goal in found["goals"]:
        holds = goal["value"] <= goal["most"] if "most" in goal else goal["value"] >= goal["least"]
        assert goal["holds"] is holds


def test_every_benchmark_records_under_its_name() -> None:
    for path in BENCHMARKS.glob("*.py"):
        if path.stem not in BY_HAND | NO_BENCHMARK:
            text = path.read_text(encoding="utf-8")
            assert f'record("{path.stem}"' in text, (
                f"{path.name} leaves no results/{path.stem}.json"
            )
