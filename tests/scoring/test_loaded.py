"""What `radial score` loads: seconds of importing only where something is made of them."""

import json
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "torchvision", "lightly", "timm", "pytorch_lightning", "sklearn", "pandas")


def loaded_by(code: str) -> set[str]:
    """Which of HEAVY a fresh process has loaded after some code."""
    told = f"import json, sys; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{told}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_scores_are_listed_without_torch() -> None:
    assert loaded_by("from radial.cli import main; main(['score', '--list'])") == set()


def test_kernels_are_scored_with_torch_alone(runs: dict[str, Path]) -> None:
    assert loaded_by(f"import radial; radial.score([{str(runs['live'])!r}])") == {"torch"}


def test_a_run_is_scored_on_images_without_lightning(runs: dict[str, Path], folder: Path) -> None:
    loaded = loaded_by(
        "import radial; from radial.scoring.settings import Settings\n"
        f"settings = Settings(data='folder:{folder}', part='train', scores=('rankme',), repeats=0)"
        f"\nradial.score([{str(runs['live'])!r}], settings)"
    )
    assert "torch" in loaded
    assert "pytorch_lightning" not in loaded
