"""Four tiny runs, trained once: a live head, the published dead one, an MLP, a collapsed one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from radial.training.config import RunConfig
from radial.training.run import train


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def runs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    arms = {
        "live": {"head": "rbfn", "num_kernels": 8},
        "dead": {"head": "rbfn-paper", "num_kernels": 8, "hidden_dim": 1024},
        "mlp": {"head": "default", "method": "moco"},
        "collapsed": {  # nothing holds the embeddings apart: no BatchNorm, no slow target
            "method": "byol",
            "head": "rbfn",
            "num_kernels": 8,
            "head_batch_norm": False,
            "momentum": 0.0,
            "base_lr": 20.0,
            "weight_decay": 0.01,
            "epochs": 12,
        },
    }
    for name, changes in arms.items():
        settings = {
            "method": "simclr",
            "data": f"folder:{folder}",
            "data_root": str(root / "data"),
            "backbone": "resnet9-w0.0625",
            "hidden_dim": 24,
            "output_dim": 12,
            "batch_size": 16,
            "epochs": 6,
            "threads": 1,
            "out": str(root / name),
        }
        train(RunConfig(**(settings | changes)), console=Console(file=io.StringIO()))
    return {name: root / name for name in arms}
