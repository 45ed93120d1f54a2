"""train(RunConfig) → RunResult, and a directory that says all there is to say about the run."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from lightning_fabric.utilities.exceptions import MisconfigurationException
from rich.console import Console

from radial.checkpoints import read_checkpoint
from radial.checks import one_line
from radial.data import Data
from radial.devices import check_precision, device_of
from radial.files import check_ours, sweep, write_atomically
from radial.training import rundir
from radial.training.build import Parts, build, build_loggers, check_processes, data_of, is_leader
from radial.training.callbacks import (
    AtomicIO,
    Bar,
    Begin,
    Checkpoints,
    Guard,
    Metrics,
    OnlineKNN,
    Report,
    RunMonitor,
    check_monitor,
)
from radial.training.compilation import called, compile_networks, worth_compiling
from radial.training.config import RunConfig, from_dict
from radial.training.module import Run
from radial.training.rundir import RunResult
from radial.verdicts import BORN_DEAD

PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
CHANGEABLE = (
    "epochs", "accelerator", "devices", "num_nodes", "threads", "compile", "workers", "save_every",
    "keep", "patience", "knn", "loggers", "on_collapse", "monitor", "monitor_every", "monitor_unit",
)  # fmt: skip


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    console: Console | None = None,
    data: Data | None = None,
    report: Report | None = None,
    until: int | None = None,
) -> RunResult:
    """Run a config from the start, in its directory.

    Args:
        config: all that is chosen.
        overwrite: replace the run that is in the directory.
        console: where progress is shown; the terminal's by default.
        data: where it is loaded already; else what ``config.data`` names.
        report: called after each look of the monitor, on rank 0, with its row: epoch, step and the
            scores by their keys, such as ``view_retrieval@backbone``. The run ends after the epoch
            in which it returns True; what it raises ends the run at once, to be resumed.
        until: pause after this epoch: no result.json is written, and :func:`resume` goes on as if
            there had been no pause.

    Returns:
        How it ended, as in result.json.

    Raises:
        ValueError: settings that do not fit each other or the data; a directory that is taken.

    Example:
        >>> from radial import RunConfig, train
        >>> result = train(RunConfig(method="simclr", head="rbfn", epochs=1))  # doctest: +SKIP
    """
    directory = config.directory
    if is_leader():
        rundir.check_free(directory, overwrite)
    console = console or Console(stderr=True)
    more: dict[str, Any] = {"clear": overwrite, "data": data, "report": report, "until": until}
    return _run(config, directory, None, console, **more)


def resume(
    directory: Path | str,
    *,
    console: Console | None = None,
    data: Data | None = None,
    report: Report | None = None,
    until: int | None = None,
    **changes: Any,
) -> RunResult:
    """Go on with a run where its last checkpoint is; more ``epochs`` extend it.

    Only what does not change the past may be changed: epochs, devices, logging.

    Args:
        directory: of the run.
        console: where progress is shown; the terminal's by default.
        data: where it is loaded already.
        report: as for `train`.
        until: pause after this epoch, as :func:`train` does.
        **changes: fields of `RunConfig`, such as ``epochs=200``.

    Returns:
        How it ended, as in result.json.

    Raises:
        ValueError: no run to go on with, other data than it began with, or a change of the past.

    Example:
        >>> from radial import resume
        >>> result = resume("runs/first", epochs=200)  # doctest: +SKIP
    """
    directory, console = Path(directory), console or Console(stderr=True)
    source, checkpoint = latest(directory, lambda line: console.print(line, markup=False))
    config = _settings(directory, checkpoint)
    if wrong := sorted(set(changes) - set(CHANGEABLE)):
        raise ValueError(
            f"cannot change {', '.join(wrong)} on resume; only {', '.join(CHANGEABLE)}"
        )
    if config.compile == "auto":  # begun by a radial that compiled nothing
        config = replace(config, compile="off")
    changed = replace(config, out=str(directory), **changes)
    if changed.epochs < config.epochs:
        raise ValueError(f"a run of {config.epochs} epochs cannot be resumed with {changed.epochs}")
    as_it_ended = source == directory / rundir.LAST or not (directory / rundir.LAST).is_file()
    if (directory / rundir.RESULT).is_file() and changed.epochs == config.epochs and as_it_ended:
        result = rundir.read_result(directory)
        if not result.stopped:
            console.print(f"radial: {directory} is complete; more --epochs extend it", markup=False)
            return replace(result, directory=str(directory))  # it may have moved
    if checkpoint is not None:
        told = from_dict(checkpoint["radial"]["config"], f"{source}: ")
        for name in sorted(config.to_dict().keys() - {*CHANGEABLE, "out"}):
            theirs, mine = getattr(told, name), getattr(config, name)
            if theirs != mine:
                raise ValueError(f"{source} is of {name} {theirs}, not {mine}")
    how: dict[str, Any] = {"data": data, "report": report, "until": until}
    return _run(changed, directory, checkpoint, console, source=source, **how)


def latest(
    directory: Path, tell: Callable[[str], None]
) -> tuple[Path, dict[str, Any]] | tuple[None, None]:
    """The newest checkpoint that is whole: last.ckpt, else one that was kept.

    Raises:
        OSError: one cannot be read: that it is damaged is not known.
        ValueError: there are some, and all are damaged.
    """
    damaged: list[ValueError] = []
    for path in rundir.checkpoints_of(directory):
        try:
            found = path, read_checkpoint(path)
        except ValueError as error:
            damaged.append(error)
            continue
        if damaged:
            tell(f"radial: {damaged[0]}; going on from {path.name}")
        return found
    if damaged:
        raise damaged[0]
    return None, None


def _settings(directory: Path, checkpoint: dict[str, Any] | None) -> RunConfig:
    """Of the run; from its checkpoint where config.yaml is damaged."""
    try:
        return rundir.read_config(directory)
    except ValueError:
        if checkpoint is None:
            raise
        return from_dict(checkpoint["radial"]["config"])


def _run(
    config: RunConfig,
    directory: Path,
    checkpoint: dict[str, Any] | None,
    console: Console,
    *,
    source: Path | None = None,  # file of the checkpoint
    clear: bool = False,
    data: Data | None = None,
    report: Report | None = None,
    until: int | None = None,
) -> RunResult:
    check_processes(config)
    device = device_of(config.accelerator)
    check_precision(config.precision, device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.set_flush_denormal(True)  # a dead head's activations are denormal: 18 times slower
    root = None if config.data_root is None else str(Path(config.data_root).resolve())
    config = replace(config, data=absolute(config.data), data_root=root)
    with warnings.catch_warnings(record=True) as odd:
        warnings.simplefilter("always", UserWarning)
        data = data or data_of(config)
    notes = [str(warning.message) for warning in odd]
    record = rundir.record_of(data)
    if checkpoint:
        notes += check_data(directory, record)
    stem = checkpoint["radial"]["stem"] if checkpoint else None
    parts = build(config, stem=stem, device=device, data=data)
    check_monitor(parts.config, parts.data)
    config = parts.config
    facts = dict(checkpoint["radial"]) if checkpoint else parts.facts()
    facts.pop("config", None)  # the checkpoint's; the module has its own
    leader = is_leader()

    def tell(message: str) -> None:
        if leader:
            console.print(f"radial: {message}", highlight=False, markup=False, soft_wrap=True)

    metrics = Metrics(directory / rundir.METRICS)
    guard = Guard(
        born_dead=facts["head_status"] in BORN_DEAD, stop=config.on_collapse == "stop", tell=tell
    )
    monitor = None
    if config.watched:
        monitor = RunMonitor(directory, config, parts.data, tell=tell, report=report)
    if checkpoint and "Metrics" not in (checkpoint.get("callbacks") or ()):  # of radial 0.1
        metrics.read(int(checkpoint["epoch"]) + 1)
        if monitor is not None:
            monitor.read(int(checkpoint["global_step"]))
    with quiet():
        begin = Begin(lambda: write())
        callbacks: list[Any] = [
            begin,
            guard,
            *([OnlineKNN()] if config.knn else []),
            *([] if monitor is None else [monitor]),
            metrics,
            Bar(console, config.epochs),
            Checkpoints(directory, config.save_every),
        ]
        trainer = build_trainer(config, directory, callbacks, until=until)
        done = int(checkpoint["epoch"]) + 1 if checkpoint else 0
        assert config.batch_size is not None
        compiled = worth_compiling(
            config,
            parts.method,
            parts.views,
            steps=(config.epochs - done) * (len(parts.data.train) // config.batch_size),
            device=device,
            context=trainer.precision_plugin.forward_context,
            tell=tell,
        )
        config = replace(config, compile="on" if compiled else "off")  # and so on resume
        parts = replace(parts, config=config)
        if compiled:
            compile_networks(parts.method)

        def write() -> None:
            """All that could be wrong has been looked at, the checkpoint is loaded."""
            check_ours(directory)
            if clear:
                rundir.remove_run(directory)
            for folder in (directory, (directory / rundir.KEPT).parent):
                sweep(folder)
            last = directory / rundir.LAST
            if source is not None and source.name != last.name and last.is_file():
                os.replace(last, directory / f"{last.name}.unreadable")
            for name in (rundir.RESULT, rundir.EVALUATION, rundir.SCORES):  # of an earlier state
                if (directory / name).exists():
                    check_ours(directory / name)
                    (directory / name).unlink(missing_ok=True)
            settings = yaml.safe_dump(config.to_dict(), sort_keys=False)
            write_atomically(directory / rundir.CONFIG, settings)
            if not (checkpoint and (directory / rundir.DATA).is_file()):
                rundir.write_data(directory, record)
            made_with = json.dumps(rundir.environment(config), indent=2)
            write_atomically(directory / rundir.ENVIRONMENT, made_with)
            for logger in trainer.loggers:
                logger.log_hyperparams(config.to_dict())

        introduce(parts, notes, tell, checkpoint)
        if guard.born_dead:
            tell(f"the projection head cannot learn: {facts['head_health']}")
        module = Run(parts.method, parts.data, parts.views, config, facts)
        try:
            with called("eagerly") if compiled else nullcontext():  # but for training steps
                trainer.fit(module, ckpt_path=source, weights_only=True)
        except Exception as error:
            if begin.done or source is None or isinstance(error, OSError):
                raise
            raise ValueError(f"{source} does not fit its settings: {one_line(error)}") from error
        except SystemExit:  # what Lightning makes of Ctrl-C
            raise KeyboardInterrupt(f"go on with: radial train --resume {directory}") from None
        if leader and not begin.done:  # killed when only the result was left to be written
            write()
    best = None if monitor is None else monitor.best_look()
    result = summarise(directory, parts, facts, guard, metrics, trainer, best)
    if leader and until is None:
        write_atomically(directory / rundir.RESULT, rundir.to_json(result))
    return result


def check_data(directory: Path, record: dict[str, Any]) -> list[str]:
    """Raise where a run would go on with other data than it began with; what else is to be said."""
    recorded = rundir.read_data(directory)
    if recorded is None:
        return [f"whether the data changed cannot be checked: {directory} has no {rundir.DATA}"]
    changed, touched = rundir.compare_data(recorded, record)
    if changed:
        raise ValueError(f"{directory} was trained on other data: {changed}; start a new run")
    if touched:
        return [f"{touched} files have another time but their size: taken for unchanged"]
    return []


def introduce(
    parts: Parts,
    notes: Iterable[str],
    tell: Callable[[str], None],
    checkpoint: dict[str, Any] | None,
) -> None:
    """The run in three lines, before it starts."""
    config, info = parts.config, parts.backbone
    tell(
        f"{config.method} with {config.head} head on {parts.data.name} "
        f"({len(parts.data.train):,} images of {info.image_size} px; {parts.data.split})"
    )
    tell(f"{info.name}, {info.feature_dim} features; stem: {info.stem}")
    for note in notes:
        tell(note)
    if (world := config.devices * config.num_nodes) > 1:
        tell(f"{world} ranks; BatchNorm {batch_norm(config)}")
    if checkpoint:
        tell(f"resuming after epoch {int(checkpoint['epoch']) + 1} of {config.epochs}")


def summarise(
    directory: Path,
    parts: Parts,
    facts: dict[str, Any],
    guard: Guard,
    metrics: Metrics,
    trainer: pl.Trainer,
    best: dict[str, Any] | None,
) -> RunResult:
    """What result.json says."""
    config = parts.config
    assert config.batch_size is not None
    assert config.backbone is not None
    speeds = sorted(float(row["images_per_second"]) for row in metrics.rows)
    return RunResult(
        directory=str(directory),
        verdict=guard.verdict,
        reason=guard.reason,
        events=tuple(guard.events),
        stopped=guard.stopped,
        method=config.method,
        head=config.head,
        data=parts.data.name,
        backbone=config.backbone,
        stem=facts["stem"],
        seed=config.seed,
        epochs=len(metrics.rows),
        steps=trainer.global_step,
        train_loss=metrics.last("train_loss"),
        val_loss=metrics.last("val_loss"),
        constant_loss=parts.method.constant_loss(config.batch_size),
        spread=metrics.last("spread"),
        knn=metrics.last("knn"),
        images=len(parts.data.train),
        split=parts.data.split,
        skipped=parts.data.skipped,
        head_health=facts["head_health"],
        batch_norm=batch_norm(config),
        seconds=round(sum(float(row["seconds"]) for row in metrics.rows), 3),
        images_per_second=speeds[len(speeds) // 2] if speeds else None,
        best=best,
    )


def batch_norm(config: RunConfig) -> str:
    if config.devices * config.num_nodes == 1:
        return "one process"
    gpu = device_of(config.accelerator).type == "cuda"
    return "synchronised over ranks" if gpu else "per rank (no SyncBatchNorm on a CPU)"


def build_trainer(
    config: RunConfig, directory: Path, callbacks: list[pl.Callback], *, until: int | None = None
) -> pl.Trainer:
    world, device = config.devices * config.num_nodes, device_of(config.accelerator)
    try:
        return pl.Trainer(
            accelerator=device.type,  # one choice: what is built there is trained there
            devices=config.devices,
            num_nodes=config.num_nodes,
            strategy="ddp" if world > 1 else "auto",
            sync_batchnorm=world > 1 and device.type == "cuda",
            precision=PRECISION[config.precision],
            max_epochs=until or config.epochs,
            plugins=[AtomicIO()],
            logger=build_loggers(config, directory),
            callbacks=callbacks,
            default_root_dir=directory,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1_000_000,
        )
    except (MisconfigurationException, ModuleNotFoundError) as error:  # no such device here
        raise ValueError(one_line(error)) from error


def absolute(data: str) -> str:
    """A path in a dataset's name, so that a run can be resumed from anywhere."""
    kind, colon, path = data.partition(":")
    return f"{kind}:{Path(path).expanduser().resolve()}" if colon and path else data


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning's advice is for those who wrote the module; errors still come through."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            warnings.filterwarnings("ignore", module="lightning_fabric")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
