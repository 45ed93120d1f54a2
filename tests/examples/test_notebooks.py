"""The notebooks run from top to bottom in a kernel, and show tables."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.py"))
TABLES = {"swap_a_head": 2, "rank_checkpoints": 2, "tune_without_labels": 1}  # at least

FAST = "swap_a_head"  # the others take longer


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, marks=() if p.stem == FAST else pytest.mark.slow, id=p.stem)
        for p in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jupytext
    from nbclient import NotebookClient

    monkeypatch.setenv("RADIAL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = jupytext.read(path)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "<table" in output.get("data", {}).get("text/html", "")
    ]
    assert len(shown) >= TABLES[path.stem]
