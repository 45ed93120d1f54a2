"""One screen to paste into an issue, and a cache that can be cleared."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import torch

import radial
from radial.cli import main
from radial.evaluation.cache import default_cache

DECLARED = [
    "torch>=2.6",
    "radial-ssl[score]; extra == 'train'",
    'numpy>=1; extra == "score"',
    "nobody>=1; extra == 'score'",
    "scipy>=1; extra == 'train'",
    "pytest>=1; sys_platform != 'darwin' and extra == 'train'",
    "apple>=1; sys_platform == 'darwin' and extra == 'train'",
]


def test_doctor_says_what_is_there_and_what_is_not(monkeypatch, capsys) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: DECLARED)
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 40  # one screen
    text = "\n".join(lines)
    assert f"radial    {radial.__version__} in" in text
    assert torch.__version__ in text
    assert "score    lacks nobody: pip install 'radial-ssl[score]'" in text
    scipy, pytest_ = metadata.version("scipy"), metadata.version("pytest")
    assert f"train    scipy {scipy}, pytest {pytest_}" in text


def test_without_a_compiler_it_says_so(monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert main(["doctor"]) == 0
    assert "none found: --compile needs a C++ compiler" in capsys.readouterr().out


def test_the_cache_is_shown_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    default_cache().put("a", {"features": torch.zeros(2**20)})
    (tmp_path / "compiled" / "gains").mkdir(parents=True)
    (tmp_path / "compiled" / "gains" / "x.json").write_text("{}")
    (tmp_path / "pixels").mkdir()
    assert main(["cache"]) == 0
    assert "features  0.00 GiB, 1 files; of at most 8 GiB" in capsys.readouterr().out
    assert default_cache().get("a") is not None
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.endswith("cleared\n")
    assert default_cache().get("a") is None
    assert [path.name for path in tmp_path.iterdir()] == ["cifar10"]  # datasets stay
