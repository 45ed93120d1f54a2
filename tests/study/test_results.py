"""Tables of results: read from a file of the layout, and from a directory of the current plan."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from radial.cli import main
from radial.study.report.write import write_table
from radial.study.results import read_runs

RUNS = pd.DataFrame(
    {
        "run": ["a", "b", "c", "d"], "data": "pets", "method": "simclr", "batch_size": 256,
        "head": ["default", "rbfn", "rbfn", "rbfn"], "normalize": [None, True, False, True],
        "train_loss": [3.1, 3.2, 3.3, 6.2], "accuracy": [0.7, 0.71, 0.69, 0.2],
        "rankme@backbone": [30.0, 31.0, 29.0, 3.0],
    }
)  # fmt: skip


def same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return all((one[c].eq(other[c]) | (one[c].isna() & other[c].isna())).all() for c in other)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_a_report_writes_can_be_read(tmp_path: Path, kind: str) -> None:
    write_table(RUNS, tmp_path / "runs")
    runs = read_runs(tmp_path / f"runs.{kind}")
    assert same(runs, RUNS)
    assert set(runs["source"]) == {f"runs.{kind}"}
    assert set(runs["verdict"]) == {"imported"}
    write_table(runs, tmp_path / "again")
    assert same(read_runs(tmp_path / f"again.{kind}"), runs)


def test_a_table_of_many_scores(tmp_path: Path) -> None:
    """Each column that becomes a number is a block of its own to pandas, which warns of many."""
    scores = pd.DataFrame({f"score{n}@backbone": [n, 1, 2, 3] for n in range(150)})
    wide = pd.concat([RUNS, scores], axis=1)
    wide.to_parquet(tmp_path / "wide.parquet")
    assert same(read_runs(tmp_path / "wide.parquet"), wide)


@pytest.mark.parametrize("name", ["heads", "scores", "published", "tune"])
def test_the_kept_results_have_the_layout(name: str) -> None:
    path = Path(__file__).parents[2] / "docs" / "findings" / name / "results.parquet"
    assert same(read_runs(path), pd.read_parquet(path))


def test_audit_and_report_take_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    RUNS.to_csv(path, index=False)
    assert main(["study", "audit", str(path)]) == 0
    assert "1 of 4 runs show no sign of having learned" in capsys.readouterr().out
    assert main(["study", "report", str(path), "--small"]) == 0
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": None}, r"row 1 has no head"),
        ({"run": "a"}, r"more than one run a"),
        ({"accuracy": 92.1}, r"accuracy must be between 0 and 1"),
        ({"train_loss": "low"}, r"train_loss is not a number everywhere"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "mine.csv"
    RUNS.assign(**change).to_csv(path, index=False)
    with pytest.raises(ValueError, match=message):
        read_runs(path)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.csv cannot be read as a table of results"):
        read_runs(tmp_path / "none.csv")
    for kind, content in (("parquet", b"PAR"), ("csv", b"\xff\xfe\x00"), ("csv", b"")):
        path = tmp_path / f"broken.{kind}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot be read as a table of results"):
            read_runs(path)
    RUNS.drop(columns=["method", "head"]).to_csv(tmp_path / "few.csv")
    with pytest.raises(ValueError, match=r"has no column method, head"):
        read_runs(tmp_path / "few.csv")
    RUNS[:0].to_csv(tmp_path / "empty.csv")
    with pytest.raises(ValueError, match=r"has no runs"):
        read_runs(tmp_path / "empty.csv")


def test_no_torch() -> None:
    code = "import sys, radial.study.results, radial.study.audit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_formulas_and_escapes_of_a_table_are_only_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a spreadsheet nor a terminal obeys what was imported."""
    rows = ["run,data,method,head,accuracy,train_loss"]
    rows += [f"=cmd|{n},\x1b[2Jdata,simclr,@head,0.1,9" for n in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    assert main(["study", "audit", str(tmp_path / "t.csv"), "--csv", str(tmp_path / "f.csv")]) == 0
    said = capsys.readouterr()
    assert "\x1b[2J" not in said.out + said.err
    written = (tmp_path / "f.csv").read_text()
    assert "'=cmd" in written
    assert not re.search(r"(^|,)[=@+]", written, flags=re.MULTILINE)
