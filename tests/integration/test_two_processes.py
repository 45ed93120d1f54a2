"""`radial train` on two ranks, started by Lightning as a user would start it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from radial.training.rundir import read_result


def run(directory: Path, *arguments: str) -> None:
    command = [
        sys.executable, "-m", "radial", "train", "--accelerator", "cpu", "--threads", "1",
        "--backbone", "resnet9-w0.0625", "--batch_size", "128", "--out", str(directory), *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    if "--devices" in arguments:
        assert "2 ranks; BatchNorm per rank (no SyncBatchNorm on a CPU)" in done.stderr


@pytest.mark.parametrize("method", ["moco"])
def test_two_ranks_train_one_run(method, tmp_path) -> None:
    flags = ("--method", method, "--head", "rbfn", "--num_kernels", "16", "--epochs", "2")
    run(tmp_path / "two", *flags, "--devices", "2")
    result = read_result(tmp_path / "two")
    assert result.verdict == "ok"
    assert result.steps == 2 * (1257 // 128)
    with (tmp_path / "two" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    state = torch.load(tmp_path / "two" / "last.ckpt", weights_only=True)["state_dict"]
    assert int(state["method.queue.pointer"]) == 128 * result.steps  # the keys of both ranks
    assert not torch.equal(state["method.queue.rows"][:64], state["method.queue.rows"][64:128])
