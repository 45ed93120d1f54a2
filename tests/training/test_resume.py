"""A run that was interrupted is the run that never was."""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from radial.methods import METHODS
from radial.training import build
from radial.training.callbacks import TIMES
from radial.training.module import Run
from radial.training.run import resume, train
from radial.training.rundir import export, read_config, read_result

QUIET = Console(quiet=True)


class PowerCut(Exception):
    pass


def metrics(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return torch.load(directory / "last.ckpt", weights_only=True)["state_dict"]


def assert_same_run(one: Path, other: Path) -> None:
    assert metrics(one) == metrics(other)
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert different == []
    results = [read_result(path) for path in (one, other)]
    assert results[0].train_loss == results[1].train_loss
    assert results[0].verdict == results[1].verdict


@pytest.mark.parametrize("head", ["default", "rbfn"])
@pytest.mark.parametrize("method", METHODS)
def test_resumed_in_the_middle_is_bit_identical(method, head, config, tmp_path, monkeypatch):
    options = {"queue_size": 32} if method == "moco" else {}
    if method == "swav":
        options = {"queue_size": 32, "prototypes": 16}
    settings = config(method=method, head=head, **options)
    whole = train(config(method=method, head=head, out=str(tmp_path / "whole"), **options))
    step = Run.training_step
    cut_at = 2 * (whole.steps // 3) + 2  # within the third epoch

    def cut(self, batch, number):
        if self.global_step == cut_at:
            raise PowerCut
        return step(self, batch, number)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "training_step", cut)
        with pytest.raises(PowerCut):
            train(settings)
    directory = settings.directory
    assert not (directory / "result.json").exists()
    (directory / "metrics.csv").write_text(  # a row the checkpoint does not know
        (directory / "metrics.csv").read_text() + "3,12,0.1,9.9,9.9,0.5,,1.0,1.0\n"
    )
    resume(directory)
    assert_same_run(tmp_path / "whole", directory)
    if method == "moco":
        assert int(weights(directory)["method.queue.pointer"]) == 16 * whole.steps


def test_more_epochs_extend_the_schedule(config, tmp_path):
    settings = config(epochs=2)
    train(settings)
    rates = [float(row["lr"]) for row in metrics(settings.directory)]
    result = resume(settings.directory, epochs=4)
    rows = metrics(settings.directory)
    assert result.epochs == 4
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4]
    assert [float(row["lr"]) for row in rows[:2]] == rates
    whole = train(config(epochs=4, warmup_epochs=0.2, out=str(tmp_path / "whole")))
    assert [row["lr"] for row in metrics(tmp_path / "whole")][2:] == [row["lr"] for row in rows][2:]
    assert whole.steps == result.steps
    assert read_config(settings.directory).epochs == 4


def test_complete_runs_are_not_repeated(config):
    settings = config(epochs=1)
    result = train(settings)
    before = (settings.directory / "last.ckpt").stat().st_mtime_ns
    assert resume(settings.directory) == result
    assert (settings.directory / "last.ckpt").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="complete run; use --overwrite"):
        train(settings)
    train(settings, overwrite=True)
    assert (settings.directory / "last.ckpt").stat().st_mtime_ns > before


def test_only_what_leaves_the_past_alone_may_change(config):
    settings = config(epochs=2)
    train(settings)
    with pytest.raises(ValueError, match="cannot change base_lr on resume"):
        resume(settings.directory, base_lr=1.0)
    with pytest.raises(ValueError, match="cannot be resumed with 1"):
        resume(settings.directory, epochs=1)
    path = settings.directory / "config.yaml"
    path.write_text(path.read_text().replace("hidden_dim: 24", "hidden_dim: 25"))
    with pytest.raises(ValueError, match=r"last.ckpt is of hidden_dim 24, not 25"):
        resume(settings.directory, epochs=3)
    assert (settings.directory / "result.json").is_file()


def test_checkpoints_that_do_not_fit(config, tmp_path):
    settings = config(epochs=1)
    train(settings)
    other = config(epochs=1, method="simsiam", out=str(tmp_path / "other"))
    train(other)
    last = settings.directory / "last.ckpt"
    content = last.read_bytes()
    last.write_bytes((other.directory / "last.ckpt").read_bytes())
    with pytest.raises(ValueError, match=r"last.ckpt is of method simsiam, not simclr"):
        resume(settings.directory, epochs=2)
    last.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"last.ckpt is damaged or no checkpoint$"):
        resume(settings.directory, epochs=2)
    torch.save({"state_dict": {}}, last)
    with pytest.raises(ValueError, match="not a checkpoint of radial train"):
        resume(settings.directory, epochs=2)
    assert (settings.directory / "result.json").exists()  # nothing was touched


@pytest.fixture
def photos(folder, tmp_path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "photos"))


def noise(path: Path, seed: int, side: int = 16) -> None:
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def add_four_and_replace_ten(photos: Path) -> None:
    for number in range(4):
        noise(photos / "top" / f"new{number}.png", number)
    for number in range(10):
        noise(photos / "bottom" / f"{number:03d}.png", number, side=17)


def remove_one(photos: Path) -> None:
    (photos / "top" / "000.png").unlink()


def replace_by_one_of_the_same_size(photos: Path) -> None:
    """As between uncompressed images, which are all of one size."""
    for path in photos.rglob("*.bmp"):
        noise(path, 0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (add_four_and_replace_ten, r"4 files added, 10 replaced, \d+ in another split; start"),
        (remove_one, r"1 file removed(, \d+ in another split)?; start"),
        (replace_by_one_of_the_same_size, r"96 files replaced; start"),
    ],
)
def test_other_data_are_refused(change, told, photos, config):
    if change is replace_by_one_of_the_same_size:
        for path in list(photos.rglob("*.png")):
            Image.open(path).save(path.with_suffix(".bmp"))
            path.unlink()
    settings = config(data=f"folder:{photos}", epochs=1)
    train(settings)
    before = {path: path.stat().st_mtime_ns for path in settings.directory.iterdir()}
    change(photos)
    with pytest.raises(ValueError, match=f"was trained on other data: {told} a new run$"):
        resume(settings.directory, epochs=2)
    assert {path: path.stat().st_mtime_ns for path in settings.directory.iterdir()} == before


def test_copied_data_are_the_same_and_unrecorded_ones_are_told_of(photos, config):
    settings = config(data=f"folder:{photos}", epochs=1)
    train(settings)
    for path in photos.rglob("*.png"):
        os.utime(path, (1, 1))
    console = Console(record=True, width=300, file=io.StringIO())
    resume(settings.directory, epochs=2, console=console)
    assert "96 files have another time but their size" in console.export_text()
    (settings.directory / "data.json.gz").unlink()  # as of a run of an earlier version
    resume(settings.directory, epochs=3, console=console)
    assert "whether the data changed cannot be checked" in console.export_text()
    resume(settings.directory, epochs=4, console=console)
    assert "cannot be checked" not in console.export_text()
    (settings.directory / "data.json.gz").write_bytes(b"other")
    with pytest.raises(ValueError, match="no record of data"):
        resume(settings.directory, epochs=5)


WAITING = """
import sys
from radial import cli
from radial.training.module import Run

step = Run.training_step

def waiting(self, *batch):
    if self.current_epoch == 3:
        print("in the fourth epoch", flush=True)
        sys.stdin.read()  # for ever: until a signal comes, or the test is gone
        sys.exit("nobody sent a signal")
    return step(self, *batch)

Run.training_step = waiting
sys.exit(cli.main(sys.argv[1:]))
"""


def flags(config) -> list[str]:
    left_out = ("loggers", "monitor")
    settings = {k: v for k, v in config.to_dict().items() if v is not None and k not in left_out}
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def send_after_three_epochs(number: signal.Signals, config) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own, which waits in its fourth epoch to be sent a signal."""
    command = [sys.executable, "-c", WAITING, "train", *flags(config)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        reached = process.stdout.readline()
        process.send_signal(number)
        errors = process.communicate()[1]
    assert reached == "in the fourth epoch\n", errors
    assert not (config.directory / "result.json").exists()
    return subprocess.CompletedProcess(command, process.returncode, None, errors)


def kill_and_resume(method: str, config, tmp_path: Path) -> None:
    train(config(method=method, epochs=6, out=str(tmp_path / "whole")))
    killed = config(method=method, epochs=6, out=str(tmp_path / "killed"))
    done = send_after_three_epochs(signal.SIGKILL, killed)
    assert done.returncode == -signal.SIGKILL
    resume(tmp_path / "killed")
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_killed_run_goes_on(config, tmp_path):
    kill_and_resume("moco", config, tmp_path)


def test_ctrl_c_says_how_to_go_on(config):
    settings = config(epochs=6)
    done = send_after_three_epochs(signal.SIGINT, settings)
    assert done.returncode == 130
    last = done.stderr.strip().splitlines()[-1]
    assert last == f"radial: interrupted; go on with: radial train --resume {settings.directory}"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_run_of_any_method_goes_on(method, config, tmp_path):
    kill_and_resume(method, config, tmp_path)


FULL = """
import resource, sys
from radial import cli

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # as on a disk with little room left
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(config):
    settings = config(epochs=1, save_every=2)
    train(settings)
    last = settings.directory / "last.ckpt"
    before = last.read_bytes()
    assert len(before) > 20_000
    command = [sys.executable, "-c", FULL, "train", "--resume", str(settings.directory)]
    done = subprocess.run([*command, "--epochs", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    kept = last.parent / "checkpoints" / "epoch-002.ckpt"  # which comes first
    assert done.stderr.strip().splitlines()[-1] == f"radial: error: {kept}: File too large"
    assert last.read_bytes() == before
    assert list(settings.directory.rglob("*.part")) == []
    resume(settings.directory, epochs=2)
    assert (settings.directory / "checkpoints" / "epoch-002.ckpt").is_file()


KILLED = """
import os, signal, sys
from pathlib import Path
from radial import cli

replace = Path.replace

def cut(self, target):
    if Path(target).name == "epoch-002.ckpt":
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = cut
sys.exit(cli.main(sys.argv[1:]))
"""


def test_killed_between_the_last_checkpoint_and_the_one_kept(config, tmp_path):
    settings = config(epochs=3, save_every=2)
    command = [sys.executable, "-c", KILLED, "train", *flags(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = settings.directory / "checkpoints" / "epoch-002.ckpt"
    assert not kept.exists()
    assert len(list(settings.directory.rglob("*.part"))) == 1
    (settings.directory / "holiday.part").touch()  # not a run's
    resume(settings.directory)
    assert [path.name for path in settings.directory.rglob("*.part")] == ["holiday.part"]
    whole = train(config(epochs=3, save_every=2, out=str(tmp_path / "whole")))
    assert_same_run(Path(whole.directory), settings.directory)
    states = [
        torch.load(path, weights_only=True)["state_dict"]
        for path in (kept, Path(whole.directory, "checkpoints", "epoch-002.ckpt"))
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])


def test_resumed_with_loader_workers_is_bit_identical(config, tmp_path, monkeypatch):
    """With workers the first batches are drawn before Lightning says which epoch it is."""
    load = build.load_data
    monkeypatch.setattr(build, "load_data", lambda *a, **k: load(*a, **k, memory_limit=0.0))
    settings = {"workers": 2, "method": "simclr"}
    train(config(**settings, epochs=4, out=str(tmp_path / "whole")), console=QUIET)
    step = Run.training_step

    def cut(self, batch, number):
        if self.current_epoch == 2 and number == 1:
            raise PowerCut
        return step(self, batch, number)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "training_step", cut)
        with pytest.raises(PowerCut):
            train(config(**settings, epochs=4), console=QUIET)
    resume(tmp_path / "run", console=QUIET)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


@pytest.fixture
def finished(config, tmp_path):
    """A run of three epochs, with what follows training, and each epoch's checkpoint kept."""
    train(config(save_every=1), console=QUIET)
    for name in ("eval.json", "scores.json"):
        (tmp_path / "run" / name).write_text("{}")
    return tmp_path / "run"


def mutate(path: Path, **changes) -> None:
    content = torch.load(path, weights_only=True)
    state = content["state_dict"]
    if changes.pop("rename", False):
        state["method.backbone.other"] = state.pop(next(iter(state)))
    content.update(changes)
    torch.save(content, path)


@pytest.mark.parametrize(
    "changes", [{"rename": True}, {"optimizer_states": []}, {"callbacks": 3}, {"loops": {}}]
)
def test_nothing_is_removed_for_a_checkpoint_that_does_not_load(finished, changes):
    shutil.rmtree(finished / "checkpoints")
    mutate(finished / "last.ckpt", **changes)
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"last\.ckpt (does not fit its settings|is damaged)"):
        resume(finished, epochs=4, console=QUIET)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def flip(path: Path) -> None:
    """One bit of a weight."""
    content = bytearray(path.read_bytes())
    state = torch.load(path, weights_only=True)["state_dict"]
    vector = next(value for value in state.values() if value.ndim == 1 and len(value) > 4)
    at = content.find(vector.numpy().tobytes())
    assert at > 0
    content[at + 9] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:-99])])
def test_a_damaged_checkpoint_is_noticed_and_a_kept_one_used(finished, damage, config, tmp_path):
    damage(finished / "last.ckpt")
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged"):
        export(finished, head=tmp_path / "head.safetensors")
    damage(finished / "checkpoints" / "epoch-003.ckpt")
    (finished / "config.yaml").write_text("")
    (finished / "metrics.csv").write_text("1,2,3\n")
    said = io.StringIO()
    resume(finished, console=Console(file=said, width=1000))
    assert "going on from epoch-002.ckpt" in said.getvalue()
    train(config(out=str(tmp_path / "whole")), console=QUIET)
    assert_same_run(tmp_path / "whole", finished)
    assert (finished / "last.ckpt.unreadable").is_file()
    for path in finished.rglob("*.ckpt"):
        path.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged"):
        resume(finished, console=QUIET)


def test_a_checkpoint_that_cannot_be_read_is_not_called_damaged(finished, monkeypatch):
    def denied(path, *rest, **more):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("radial.checkpoints.zipfile.ZipFile", denied)
    with pytest.raises(OSError, match=r"Input/output error"):
        resume(finished, epochs=4, console=QUIET)
    assert (finished / "result.json").is_file()


def test_killed_before_there_was_a_config(config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml.0123456789ab.part").write_text("method: sim")
    assert train(config(epochs=1), console=QUIET).epochs == 1
    assert not list((tmp_path / "run").glob("*.part"))
