"""The directory of a run: its files, what they hold, reading them back.

And weights out of it, in files that other code reads without radial. Light to import: no torch.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import radial
from radial.checks import as_kind, one_line
from radial.documents import parse_json, read_yaml
from radial.files import check_ours, sweep, write_atomically
from radial.training.config import RunConfig, from_dict, slug

if TYPE_CHECKING:
    from radial.data import Data

# The files of a run.
CONFIG, DATA, RESULT = "config.yaml", "data.json.gz", "result.json"
ENVIRONMENT, METRICS, MONITOR = "environment.json", "metrics.csv", "monitor.csv"
EVALUATION, SCORES = "eval.json", "scores.json"
LAST, STOPPED, BEST = "last.ckpt", "stopped.ckpt", "best.ckpt"
KEPT = "checkpoints/epoch-{:03d}.ckpt"  # one every save_every epochs

_PARTS = ("train", "val", "test")
PACKAGES = ("torch", "torchvision", "lightly", "pytorch-lightning", "numpy", "scikit-learn")


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The summary in result.json, which is written last: its presence means complete.

    Attributes:
        directory: of the run.
        verdict: "ok", "dead head", "collapsed" or "diverged".
        reason: in words, where it is not ok.
        events: what was noticed on the way, with its epoch.
        stopped: before its last epoch, by ``on_collapse="stop"``.
        method: by name, like head, data and backbone.
        head: by name.
        data: as given.
        backbone: by name.
        stem: of the backbone: for small images, or its library's.
        seed: of everything.
        epochs: trained.
        steps: of the optimiser.
        train_loss: mean of the last epoch.
        val_loss: of batches as large as the validation split allows.
        constant_loss: what the loss of a constant output would be.
        spread: of the embeddings on the unit sphere, 0 where all are alike.
        knn: accuracy of nearest neighbours on the validation split, where there are labels.
        images: in the training split.
        split: in words.
        skipped: images that could not be read.
        head_health: what `diagnose` said before the first step.
        batch_norm: how statistics were shared between ranks.
        seconds: of training.
        images_per_second: likewise.
        best: score, value, epoch and step of the monitor's best look, where there was one.
    """

    directory: str
    verdict: str
    reason: str
    events: tuple[dict[str, Any], ...]
    stopped: bool
    method: str
    head: str
    data: str
    backbone: str
    stem: str
    seed: int
    epochs: int
    steps: int
    train_loss: float | None
    val_loss: float | None
    constant_loss: float
    spread: float | None
    knn: float | None
    images: int
    split: str
    skipped: tuple[str, ...]
    head_health: str
    batch_norm: str
    seconds: float
    images_per_second: float | None
    best: dict[str, Any] | None = None


def check_free(directory: Path, overwrite: bool) -> None:
    """A new run must not cover an old one; what a killed writer left is in nobody's way."""
    above = next(parent for parent in directory.resolve().parents if parent.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file: {directory} cannot be made")
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ValueError(f"{directory} is a file, not a directory")
    sweep(directory)
    if overwrite:
        if any(directory.iterdir()) and not (directory / CONFIG).is_file():
            raise ValueError(f"{directory} is not the directory of a run: nothing overwritten")
        return
    if (directory / RESULT).is_file():
        raise ValueError(f"{directory} holds a complete run; use --overwrite or another --out")
    if (directory / CONFIG).is_file():
        raise ValueError(f"{directory} holds an unfinished run; use --resume {directory}")
    if any(directory.iterdir()):
        raise ValueError(f"{directory} is not empty and not the directory of a run")


def remove_run(directory: Path) -> None:
    """Remove what a run writes, and nothing else.

    Its config stays: it says whose directory it is, until the next one takes its place.

    Raises:
        NotOurs: another process has the run by now; looked at before each, lest a worker that was
            halted here removes what that process has made.
    """
    files = (RESULT, EVALUATION, SCORES, LAST, STOPPED, BEST, METRICS, MONITOR, DATA, ENVIRONMENT)
    for name in files:
        if (directory / name).exists():
            check_ours(directory / name)
            (directory / name).unlink(missing_ok=True)
    for name in ("checkpoints", "tensorboard", "wandb"):
        if (directory / name).exists():
            check_ours(directory / name)
            shutil.rmtree(directory / name, ignore_errors=True)


def checkpoints_of(directory: Path) -> list[Path]:
    """What a run can be resumed from, the latest first."""
    kept = directory.glob(KEPT.replace("{:03d}", "*"))
    latest_first = sorted(kept, key=lambda path: (len(path.name), path.name), reverse=True)
    return [path for path in (directory / LAST, *latest_first) if path.is_file()]


def read_config(directory: Path) -> RunConfig:
    path = directory / CONFIG
    if not path.is_file():
        raise ValueError(f"{directory} is not the directory of a run: it has no {CONFIG}")
    return from_dict(read_yaml(path), f"{path}: ")


def read_result(directory: Path) -> RunResult:
    path = directory / RESULT
    try:
        values = parse_json(path.read_bytes())
        result = RunResult(**values | {name: tuple(values[name]) for name in ("events", "skipped")})
        for name, kind in get_type_hints(RunResult).items():
            if set(get_args(kind) or (kind,)) <= {str, int, float, bool, NoneType}:
                as_kind(name, getattr(result, name), kind)
    except OSError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not the result of a run: {one_line(error)}") from error
    return result


def to_json(result: RunResult) -> str:
    """Valid JSON: a loss that is NaN or inf becomes null."""
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(result).items()
    }
    return json.dumps(values, indent=2, allow_nan=False)


def record_of(data: Data) -> dict[str, Any]:
    """The data of a run, cheaply: no pixel is read.

    Each split lists its images as [name, bytes, time of modification]; images that come with a
    package or from an archive have numbers for names, and nothing else. The mean and std of the
    training pixels, which are known by now, stand for what names and sizes do not show.
    """

    def listed(row: int) -> list[Any]:
        if data.files is None:
            return [str(row), None, None]
        try:
            stat = os.stat(data.files.path(row))
        except OSError:  # gone since it was read
            return [data.files.name(row), None, None]
        return [data.files.name(row), stat.st_size, stat.st_mtime_ns]

    parts = {part: list(map(listed, getattr(data, part).index.tolist())) for part in _PARTS}
    return {"mean": data.mean.tolist(), "std": data.std.tolist(), **parts}


def compare_data(then: dict[str, Any], now: dict[str, Any]) -> tuple[str, int]:
    """What changed between two records, in words, "" for nothing; and how many were touched.

    A file is replaced that has another size; or another time, where the mean or std of the
    training pixels has changed, too. One with another time only is touched: so is a copy.
    """
    before, after = (
        {name: (part, size, time) for part in _PARTS for name, size, time in record[part]}
        for record in (then, now)
    )
    both = [(before[name], after[name]) for name in after if name in before]
    pixels = any(then[name] != now[name] for name in ("mean", "std"))
    touched = sum(old[1] == new[1] and old[2] != new[2] for old, new in both)
    counts = {
        "added": len(after) - len(both),
        "removed": len(before) - len(both),
        "replaced": sum(old[1] != new[1] for old, new in both) + (touched if pixels else 0),
        "in another split": sum(old[0] != new[0] for old, new in both),
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    if told:
        first, _, rest = told[0].partition(" ")
        told[0] = f"{first} file{'s' * (first != '1')} {rest}"
    elif pixels:
        told = ["the mean or std of the training pixels is another"]
    return ", ".join(told), touched


def read_data(directory: Path) -> dict[str, Any] | None:
    """The record of the data a run began with; None for runs of before there was one."""
    path = directory / DATA
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        record: dict[str, Any] = json.loads(gzip.decompress(content))
        compare_data(record, record)
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        zlib.error,
    ) as error:
        raise ValueError(f"{path} is no record of data: {one_line(error)}") from error
    return record


def write_data(directory: Path, record: dict[str, Any]) -> None:
    write_atomically(directory / DATA, gzip.compress(json.dumps(record).encode(), mtime=0))


def environment(config: RunConfig) -> dict[str, Any]:
    """What a run was made with."""
    import torch  # only here: names and results are read without waiting for it

    commit = (
        subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        if shutil.which("git")
        else None
    )
    return {
        "radial": radial.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **versions(PACKAGES),
        "seed": config.seed,
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "git_of_working_directory": commit.stdout.strip() or None if commit else None,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def versions(names: Iterable[str]) -> dict[str, str]:
    """By the name of the package; what is not installed is left out.

    >>> list(versions(["numpy", "no-such-package"]))
    ['numpy']
    """
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def export(
    run: Path | str, *, backbone: Path | str | None = None, head: Path | str | None = None
) -> list[str]:
    """Write the backbone, the projection head, or both; one line for each file written.

    ``run`` is the directory of a run, or one of its checkpoints. The backbone has the keys of
    torchvision, lightly or timm, without the classifier: it loads there with ``strict=True`` once
    the model's own classifier is replaced by ``nn.Identity()``. The head's kernels
    are read by `radial.load_kernels`.
    """
    from safetensors.torch import save

    from radial.backbones import build_backbone, save_backbone
    from radial.checkpoints import load_into, part, read_checkpoint

    path = run = Path(run)
    if run.is_dir():
        path = run / (LAST if (run / LAST).is_file() else STOPPED)
        if not path.is_file():
            raise ValueError(f"{run} has no checkpoint: not the directory of a run, or too young")
    for file in (backbone, head):
        if file is not None and Path(file).suffix != ".safetensors":
            raise ValueError(f"weights are written as .safetensors, not {str(file)!r}")
    checkpoint = read_checkpoint(path)
    facts, state = checkpoint["radial"], checkpoint["state_dict"]
    config = from_dict(facts["config"], f"{path}: ")
    lines = []
    if backbone is not None:
        module, info = build_backbone(
            str(config.backbone), image_size=facts["image_size"], stem=facts["stem"]
        )
        complaint = f"{path}: its backbone does not fit its config"
        load_into(module, part(state, "method.backbone."), complaint)
        extra = {"mean": json.dumps(facts["mean"]), "std": json.dumps(facts["std"])}
        extra |= {"method": config.method, "head": config.head, "data": slug(config.data)}
        save_backbone(module, backbone, info, extra)
        lines.append(f"{backbone}: {info.name}, {info.feature_dim} features; stem: {info.stem}")
    if head is not None:
        tensors = part(state, "method.projection_head.")
        if not tensors:
            raise ValueError(f"{path} holds no projection head")
        whole = {f"projection_head.{name}": value.contiguous() for name, value in tensors.items()}
        write_atomically(head, save(whole, {"method": config.method, "head": config.head}))
        lines.append(f"{head}: projection head of {len(whole)} tensors")
    return lines
