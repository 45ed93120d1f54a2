"""Callbacks for any LightningModule, of `pytorch_lightning` as of `lightning`: scores and verdicts.

The two packages hold the same classes twice, and neither knows the other's. A callback made here
is one of each that is loaded, so it does not matter which of them the Trainer comes from; and
importing this module loads neither.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from inspect import Signature, signature
from typing import Any, Self

from torch import Tensor, nn
from torch.nn import functional as F

from radial.checks import check_choice, check_size
from radial.evaluation.monitor import Monitor, Rows, part_of
from radial.rbf.health import effective_rank
from radial.verdicts import COLLAPSED, FEWEST_DIMENSIONS, OK, WINDOW, run_verdict

UNITS = {"epoch": 1, "step": 200}  # how many lie between two looks, unless told otherwise
EVERY = 10  # steps between two looks of the guard on a GPU, where reading a value waits for it
PACKAGES = ("pytorch_lightning", "lightning.pytorch")
Part = str | Callable[[Any], Any]  # of a LightningModule: a dotted name, or what finds it


@cache
def _of(kind: type[Any], packages: tuple[str, ...]) -> type[Any]:
    bases = (sys.modules[name].Callback for name in packages)
    facts = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "made_of": kind}
    return type(kind.__name__, (kind, *bases), facts | {"__doc__": kind.__doc__})


class AnyCallback:
    """A Callback of every Lightning that is loaded when it is made."""

    made_of: type[Any]

    def __init_subclass__(cls, **options: Any) -> None:  # what help() shows: not that of __new__
        super().__init_subclass__(**options)
        _, *taken = signature(cls.__init__).parameters.values()
        cls.__signature__ = Signature(taken)  # type: ignore[attr-defined]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        loaded = tuple(name for name in PACKAGES if name in sys.modules)
        if not loaded:
            import_module(PACKAGES[0])
            loaded = PACKAGES[:1]
        made: type[Self] = _of(getattr(cls, "made_of", cls), loaded)  # type: ignore[arg-type]
        return object.__new__(made)

    def __reduce__(self) -> tuple[Any, ...]:  # a class made on the way is not found by its name
        return _again, (self.made_of,), self.__dict__


def _again(kind: type[AnyCallback]) -> Any:
    return kind.__new__(kind)


class LabelFreeMonitor(AnyCallback):
    """Logs label-free scores of held-out images, for ModelCheckpoint, EarlyStopping and loggers.

    What a look is, `radial.Monitor` says: the same images and views each time, eval mode,
    no trace left in weights, buffers or random numbers. Rank 0 looks, and all ranks log its
    values by ``pl_module.log``: as ``view_retrieval`` and, for another layer than asked for by
    the bare name, ``view_retrieval_projector``. The look of an epoch comes before callbacks are
    told that its validation has ended. Strategies that shard a model over ranks are not for this.

    Args:
        images: held-out images, as for `radial.Monitor`: a folder, paths, a uint8 tensor
            or a dataset.
        backbone: images → features: a dotted name in the module, or a function of the module that
            returns the network.
        projection_head: features → embeddings, likewise; used where the module has it.
        scores: names as in ``radial score --list``.
        every: how many epochs or steps lie between two looks; 1 epoch, or 200 steps.
        unit: epoch or step.
        **options: of `radial.Monitor`: image_size, mean, std, view, views, most, seed, batch.

    Raises:
        ValueError: an unknown score or unit, too few images; at the first look, a name that the
            module does not have.

    Example:
        >>> import torch
        >>> from pytorch_lightning import Callback  # or from lightning.pytorch
        >>> images = torch.randint(0, 256, (32, 3, 16, 16), dtype=torch.uint8)
        >>> isinstance(LabelFreeMonitor(images, every=5), Callback)
        True
    """

    def __init__(
        self,
        images: Any,
        backbone: Part = "backbone",
        *,
        projection_head: Part = "projection_head",
        scores: Iterable[str] = ("view_retrieval",),
        every: int | None = None,
        unit: str = "epoch",
        **options: Any,
    ) -> None:
        check_choice("unit", unit, UNITS)
        self.every, self.unit = UNITS[unit] if every is None else every, unit
        check_size("every", self.every)
        self.backbone, self.projection_head = backbone, projection_head
        self.monitor = Monitor(images, scores, **options)
        self._looked: int | None = None  # the step of the last look

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._looked = None  # one monitor may serve many fits, such as the trials of a search

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if "start_views" in self.monitor.needs and trainer.global_step == 0:
            self.monitor.begin(self._backbone(pl_module))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step  # 0 as long as gradients of the first are accumulated
        if self.unit == "step" and step and step % self.every == 0:
            self._look(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Before ModelCheckpoint and pruning callbacks, which act when validation has ended."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking and trainer.is_last_batch:
            self._epoch(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._epoch(trainer, pl_module)  # where there is no validation, or none at the end

    def _epoch(self, trainer: Any, pl_module: Any) -> None:
        if self.unit == "epoch" and (trainer.current_epoch + 1) % self.every == 0:
            self._look(trainer, pl_module)

    def _look(self, trainer: Any, pl_module: Any) -> None:
        if self._looked == trainer.global_step:
            return
        self._looked = trainer.global_step
        values: dict[str, float] = {}
        if trainer.is_global_zero:
            values = self.monitor(self._backbone(pl_module), self._head(pl_module))
        values = trainer.strategy.broadcast(values)
        for name, value in values.items():
            pl_module.log(name, value, logger=False, batch_size=1)
        for logger in trainer.loggers:  # not by log(): it may leave out steps
            logger.log_metrics(values, step=trainer.global_step)
        self._received(trainer, pl_module, values)

    def _received(self, trainer: Any, pl_module: Any, values: dict[str, float]) -> None:
        """What else is to be done with the values of a look, on every rank."""

    def _backbone(self, pl_module: Any) -> nn.Module:
        found = _part(pl_module, self.backbone)
        return Rows(found, None if isinstance(found, nn.Module) else pl_module)

    def _head(self, pl_module: Any) -> nn.Module | None:
        try:
            return _part(pl_module, self.projection_head)  # type: ignore[no-any-return]
        except ValueError:  # who needs one is told by the monitor
            return None


def _part(pl_module: Any, part: Part) -> Any:
    return part_of(pl_module, part) if isinstance(part, str) else part(pl_module)


def embedding_spread(embeddings: Tensor) -> Tensor:
    """√d times the mean deviation of unit-length embeddings: 1 isotropic, 0 collapsed."""
    unit = F.normalize(embeddings.float(), dim=1)
    return unit.std(0).mean() * math.sqrt(unit.shape[1])


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)


class CollapseGuard(AnyCallback):
    """Watches loss and embeddings of any module, one look a step on a CPU; warns, or stops.

    What they mean is `radial.verdicts.run_verdict`'s to say: diverged, or collapsed where
    all embeddings of 20 steps point the same way, or those of an epoch's last step lie on a line.
    A run that recovers is ok again; ``events`` stay on record, ``verdict`` and ``reason`` are the
    latest.

    Args:
        embeddings: the part of the module whose output they are (B, D), by its dotted name; or a
            function that returns the latest embeddings of a module.
        stop: end training where it has collapsed or diverged.
        tell: takes one line for the user; by default it is a warning.

    Raises:
        ValueError: when training starts, a name that the module does not have.
    """

    method = ""  # by its name, where the loss of a constant output is known

    def __init__(
        self,
        embeddings: Part = "projection_head",
        *,
        stop: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.embeddings, self.stop, self.tell = embeddings, stop, tell or _warn
        self.born_dead, self.constant = False, math.nan
        self._latest: Tensor | None = None
        self._hook: Any = None
        self._begin()

    def _begin(self) -> None:
        self.verdict, self.reason, self.stopped = OK, "", False
        self.events: list[dict[str, Any]] = []
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # loss, spread
        self._rank = math.inf  # of the embeddings at the end of the last epoch

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.global_step == 0:  # what it saw of another run says nothing of this one
            self._begin()
        if isinstance(self.embeddings, str):
            part = _part(pl_module, self.embeddings)
            self._hook = part.register_forward_hook(self._keep)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._let_go()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = self._latest = None

    def _keep(self, part: nn.Module, args: Any, output: Any) -> None:
        if not part.training:
            return
        if not isinstance(output, Tensor) or output.dim() != 2:
            given = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(f"{self.embeddings} must give embeddings (B, D), not {given}")
        self._latest = output.detach()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        last = trainer.is_last_batch
        late = trainer.global_step > WINDOW and not last
        if pl_module.device.type != "cpu" and trainer.global_step % EVERY and late:
            return
        loss, embeddings = self._seen(pl_module, outputs)
        if embeddings is None:
            return
        self._recent.append((float(loss), float(embedding_spread(embeddings))))
        possible = min(len(embeddings) - 1, embeddings.shape[1])
        if last and possible >= FEWEST_DIMENSIONS and bool(embeddings.isfinite().all()):
            self._rank = effective_rank((embeddings - embeddings.mean(0)).cpu().double())
        self._judge(trainer)

    def _seen(self, pl_module: Any, outputs: Any) -> tuple[Tensor | float, Tensor | None]:
        """Loss and embeddings of the last step."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        ask = self.embeddings
        found = self._latest if isinstance(ask, str) else ask(pl_module).detach()
        return (0.0 if loss is None else loss), found  # a loop of one's own may hand out no loss

    def _judge(self, trainer: Any) -> None:
        losses, spreads = zip(*self._recent)
        verdict, reason = run_verdict(
            self.method,
            losses,
            spreads,
            constant=self.constant,
            rank=self._rank,
            born_dead=self.born_dead,
        )
        if verdict != self.verdict:
            self.events.append({"step": trainer.global_step, "verdict": verdict, "reason": reason})
            word = f"{verdict}: {reason}" if reason else "recovered"
            self.tell(f"step {trainer.global_step}: {word}")
        self.verdict, self.reason = verdict, reason
        if self.stop and trainer.strategy.reduce_boolean_decision(verdict != OK, all=False):
            self.stopped = trainer.should_stop = True
            if verdict == OK:
                self.verdict, self.reason = COLLAPSED, "on another rank"

    def state_dict(self) -> dict[str, Any]:
        recent = [list(pair) for pair in self._recent]
        names = {"verdict": self.verdict, "reason": self.reason, "events": self.events}
        return names | {"recent": recent, "rank": self._rank}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._begin()
        self.verdict, self.reason = str(state_dict["verdict"]), str(state_dict["reason"])
        self.events = [dict(event) for event in state_dict["events"]]
        self._rank = float(state_dict["rank"])
        self._recent.extend((float(loss), float(spread)) for loss, spread in state_dict["recent"])
