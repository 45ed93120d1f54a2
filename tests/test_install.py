"""What a stranger installs: the wheel, its metadata, and each extra in a fresh environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from radial.checks import _EXTRAS, MissingPackage, needs, with_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_every_extra_that_is_named_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    named = {n for text in texts for n in re.findall(r"radial-ssl\[(\w+)\]", text)}
    asked = {n for text in texts for n in re.findall(r'\bneeds\("(\w+)"', text)}
    assert {"score", "train", "data"} <= named | asked | set(_EXTRAS.values()) <= set(EXTRAS)


def test_a_missing_package_is_told_with_its_extra() -> None:
    with pytest.raises(MissingPackage, match=r"^nobody is not installed: .*'radial-ssl\[score\]'$"):
        needs("score", "torch", "nobody")
    for name, extra in _EXTRAS.items():
        told = with_hint(ModuleNotFoundError("no", name=f"{name}.inside"))
        assert str(told) == f"{name} is not installed: pip install 'radial-ssl[{extra}]'"
    ours = ModuleNotFoundError("no", name="somebody")
    assert with_hint(ours) is ours


def test_readme_can_stand_on_the_index() -> None:
    """Links and images there have no directory to be relative to; each file is in the tree."""
    base = PROJECT["urls"]["Homepage"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    for link in links:
        assert link.startswith("https://"), link
        if link.startswith(f"{base}/"):
            inside = re.sub(r"^/(blob|tree|raw)/main/|#.*", "", link.removeprefix(base))
            assert (ROOT / inside).exists(), link


UV = [sys.executable, "-m", "uv"] if find_spec("uv") else ["uv"]
HEADER = "import torch; from radial.cli import main\n"
TINY = "'--data', 'digits', '--backbone', 'resnet9-w0.0625', '--epochs', '1'"
# What must work with an extra alone, and what must ask for which other extra.
ALONE = {
    "": """
from radial import RBFNProjectionHead, calibrate, diagnose, metrics
features = torch.rand(256, 64)
assert diagnose(calibrate(RBFNProjectionHead(64, 64, 32), features), features).verdict == "alive"
assert metrics.rankme(features) > 1
assert main(["version"]) == main(["score", "--list"]) == 0
asks("score", "score", "torchvision:resnet18@none", "--data", "digits")
asks("train", "train", "--data", "digits")
asks("study", "demo", "--out", "demo")
asks("data", "data", "open-images", "sample", "--out", "oi")
""",
    "score": f"""
assert main(["score", "torchvision:resnet18@none", "--data", "digits", "--html", "c.html",
             "--scores", "view_retrieval,rankme,kmeans_silhouette"]) == 0
asks("timm", "score", "timm:resnet18@none", "--data", "digits")
asks("train", "train", {TINY})
""",
    "train": f"""
assert main(["train", {TINY}, "--out", "run"]) == 0
assert main(["score", "run", "--data", "digits", "--scores", "rankme"]) == 0
assert main(["eval", "run", "--data", "digits"]) == 0
asks("study", "study", "plan", "quick")
""",
    "study": """
assert main(["demo", "--out", "demo", "--set", "seeds=[0]", "--set", "methods=[simclr]",
             "--set", "exclude=[]", "--set", "epochs=1", "--set", "base_lr=0.12"]) == 0
""",
    "ray": "import ray, pandas",
    "tune": "import optuna, pandas",
    "timm": """
assert main(["score", "timm:resnet18@none", "--data", "digits", "--scores", "rankme"]) == 0
""",
    "hf": """
from transformers import ViTConfig, ViTModel
tiny = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}
ViTModel(ViTConfig(**tiny, intermediate_size=64, image_size=32)).save_pretrained("tiny")
assert main(["score", "tiny", "--data", "digits", "--scores", "rankme"]) == 0
open("m.onnx", "wb").close()
asks("onnx", "score", "m.onnx", "--data", "digits")
""",
    "clip": "import open_clip, torchvision",
    "onnx": """
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2), torch.nn.AdaptiveAvgPool2d(1),
                          torch.nn.Flatten()).eval()
torch.onnx.export(net, (torch.rand(2, 3, 32, 32),), "m.onnx", dynamo=True,
                  dynamic_shapes=({0: torch.export.Dim("b")},), verbose=False)
assert main(["score", "m.onnx", "--data", "digits", "--scores", "rankme"]) == 0
asks("hf", "score", "hf:nobody/none", "--data", "digits")
asks("clip", "score", "openclip:ViT-B-32@none", "--data", "digits")
""",
    "data": """
import duckdb, filelock, pyarrow, urllib3
assert main(["data", "open-images", "sample", "--metadata", "nowhere", "--out", "oi"]) == 2
""",
}  # fmt: skip
ASKS = """
import contextlib, io
def asks(extra, *words):
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        assert main(list(words)) == 2, words
    line = told.getvalue()
    assert line.count("\\n") == 1 and f"'radial-ssl[{extra}]'" in line, line
"""


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    assert len(list(out.iterdir())) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *out.iterdir())
    return next(out.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.parametrize("extra", ALONE)
def test_an_extra_works_alone(extra: str, wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, from the wheel, far from the repository."""
    if find_spec("uv") is None and shutil.which("uv") is None:
        pytest.skip("uv is not installed: pip install uv")
    place = tmp_path / "env"
    run(*UV, "venv", "--python", sys.executable, place)
    wanted = f"radial-ssl[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    pins = ("--constraint", ROOT / "constraints.txt")
    run(*UV, "pip", "install", "--python", place, *pins, wanted)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean |= {"RADIAL_DATA": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    code = HEADER + ASKS + ALONE[extra]
    python = next(place.glob("*/python")) if os.name != "nt" else place / "Scripts" / "python.exe"
    run(python, "-c", code, cwd=tmp_path, env=clean)


def test_every_extra_is_tried_alone() -> None:
    assert set(ALONE) - {""} == set(EXTRAS) - {"all", "dev", "docs", "loggers"}
