"""Says at once that a head is dead, and during training that a run has collapsed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl

from radial.methods import Method
from radial.rbf.health import effective_rank
from radial.training.module import Run, spread
from radial.verdicts import COLLAPSED, FEWEST_DIMENSIONS, OK, WINDOW, run_verdict

EVERY = 10  # steps between two looks on a GPU, where reading a value waits for the device


class Guard(pl.Callback):
    """Watches loss and embeddings, one look a step on a CPU; warns, or stops the run.

    What they mean is :func:`radial.verdicts.run_verdict`'s to say. A run that recovers is ok
    again; the events stay on record.
    """

    def __init__(self, *, born_dead: bool, stop: bool, tell: Callable[[str], None]) -> None:
        self.born_dead, self.stop, self.tell = born_dead, stop, tell
        self.verdict, self.reason = OK, ""
        self.events: list[dict[str, Any]] = []
        self.stopped = False
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # loss, spread
        self._rank = math.inf  # of the embeddings at the end of the last epoch

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Run)
        late = trainer.global_step > WINDOW and not trainer.is_last_batch
        if module.device.type != "cpu" and trainer.global_step % EVERY and late:
            return
        loss, embeddings = module.latest.loss.detach(), module.latest.embeddings
        self._recent.append((float(loss), float(spread(embeddings))))
        constant = module.method.constant_loss(module.batch_size)
        possible = min(len(embeddings) - 1, embeddings.shape[1])
        if (
            trainer.is_last_batch
            and possible >= FEWEST_DIMENSIONS
            and bool(embeddings.isfinite().all())
        ):
            self._rank = effective_rank((embeddings - embeddings.mean(0)).double())
        self._judge(trainer, module.method, constant)

    def _judge(self, trainer: pl.Trainer, method: Method, constant: float) -> None:
        losses, spreads = zip(*self._recent)
        verdict, reason = run_verdict(
            method.name,
            losses,
            spreads,
            constant=constant,
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
        self.verdict, self.reason = state_dict["verdict"], state_dict["reason"]
        self.events, self._rank = list(state_dict["events"]), state_dict["rank"]
        self._recent.extend((loss, spread) for loss, spread in state_dict["recent"])
