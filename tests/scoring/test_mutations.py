"""300 mutated files of every format: exit code 0 or 2, one line, nothing run or left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from foreign_files import LAYOUTS, another, save

HERE = Path(__file__).parent


def vit() -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(
        img_size=16, patch_size=8, embed_dim=64, depth=1, num_heads=1, num_classes=0
    ).eval()


def layout(name: str, legacy: bool = False) -> Callable[[Path], object]:
    state = vit().state_dict()
    content = LAYOUTS[name](state, another(state))
    return lambda path: save(content, path, _use_new_zipfile_serialization=not legacy)


def parquet(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"embedding": np.random.rand(20, 4).tolist()}), path)


def onnx(path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    options = {"dynamo": False, "dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"]}
    torch.onnx.export(net, (torch.zeros(2, 3, 16, 16),), str(path), **options)


def transformers(path: Path) -> None:
    import transformers as hf

    config = hf.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=8,
    )  # fmt: skip
    hf.AutoModel.from_config(config).save_pretrained(path)


FORMATS: dict[str, Callable[[Path], object]] = {
    "plain.pth": layout("plain"),
    "dino.pth": layout("DINO"),
    "solo.ckpt": layout("solo-learn"),
    "old.pth.tar": layout("MAE", legacy=True),
    "module.pt": lambda path: torch.save(vit(), path),
    "net.safetensors": lambda path: save_file(vit().state_dict(), path),
    "embeddings.npy": lambda path: np.save(path, np.random.rand(20, 4).astype("f4")),
    "embeddings.npz": lambda path: np.savez_compressed(path, features=np.random.rand(20, 4)),
    "embeddings.pt": lambda path: torch.save(torch.rand(20, 4), path),
    "embeddings.safetensors": lambda path: save_file({"features": torch.rand(20, 4)}, path),
    "embeddings.parquet": parquet,
    "net.onnx": onnx,
    "script.pt": lambda path: torch.jit.trace(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval(),
        torch.zeros(1, 3, 16, 16),
    ).save(str(path)),
    "transformers": transformers,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of exporters and tracers
@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_scored_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    count = int(os.environ.get("RADIAL_MUTATIONS", "300"))
    for folder in ("photos", "cache"):
        (tmp_path / folder).mkdir()
    rng = np.random.default_rng(0)
    for number in range(24):
        pixels = rng.integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    FORMATS[name](tmp_path / name)
    command = [sys.executable, str(HERE / "mutations.py"), name, "folder:photos", str(count)]
    environment = os.environ | {"RADIAL_DATA": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]  # a crash of a library's own reader
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert not found["wrong"], found
    assert sum(found["codes"].values()) == count
    print(name, found["codes"])
