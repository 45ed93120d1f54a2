"""The published tables, by the commands that anyone would type: table, audit, report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import test_importance
import test_peaks
from study_cases import RESULTS, ROOT

from radial.cli import main

DATA = {"imagenet-100": "ImageNet100", "open-images-v7-50": "OpenImagesV7-50"}
METRICS = ["f1", "accuracy", "precision", "recall"]


@pytest.fixture(scope="module", params=["parquet", "csv"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published tables as one, by the script in studies/."""
    if not RESULTS.is_dir():
        pytest.skip(f"{RESULTS} is not there: run beside the published tables")
    out = tmp_path_factory.mktemp("published") / f"published.{request.param}"
    script = [sys.executable, str(ROOT / "studies" / "published_tables.py")]
    done = subprocess.run([*script, str(RESULTS), str(out)], capture_output=True, check=True)
    assert done.stdout.startswith(b"450 runs: ")
    return out


def test_one_command_gives_the_peak_and_shap_tables(runs: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    report = ["study", "report", str(runs), "--html", str(page), "--markdown", str(text)]
    assert main([*report, "--tables", str(tmp_path)]) == 0
    peaks = pd.read_csv(tmp_path / "peaks.csv").set_index(["data", "method", "head"])[METRICS]
    for name, data in DATA.items():
        for method, values in test_peaks.PUBLISHED[name].items():
            found = [*peaks.loc[data, method, "default"], *peaks.loc[data, method, "rbfn-paper"]]
            assert np.round(found, 2) == pytest.approx(values, abs=1e-9), (data, method)
    shap = pd.read_parquet(tmp_path / "importance.parquet").set_index(["data", "feature"])
    columns = ["mean_abs", "mean_positive", "mean_negative"]
    for name, data in DATA.items():
        for feature, values in test_importance.PUBLISHED[name].items():
            found = shap.loc[(data, feature), columns].to_numpy(float)
            assert np.round(found, 2) == pytest.approx(values, abs=1e-9), (data, feature)
    assert "ImageNet100" in text.read_text(encoding="utf-8")
    assert page.stat().st_size < 8e6


def test_the_audit_names_the_dead_runs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "audit", str(runs), "--csv", str(tmp_path / "flags.csv")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "361 of 450 runs show no sign of having learned" in told
    assert "all 18 of radial_function gaussian, have one accuracy, 0.921659" in told
    flags = pd.read_csv(tmp_path / "flags.csv")
    assert flags["flags"].notna().sum() == 361
    constant = flags.groupby("data")["no_signal"].sum()
    assert constant.to_dict() == {"ImageNet100": 180, "OpenImagesV7-50": 112}
