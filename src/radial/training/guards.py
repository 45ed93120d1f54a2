"""Says at once that a head is dead, and during training that a run has collapsed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl

from radial.rbf.health import effective_rank
from radial.training.module import Run, spread

WINDOW = 20  # steps in a row that must agree
SPREAD = 0.01  # of 1: below it all embeddings point the same way
RANK = 1.5  # effective rank: below it embeddings lie on a line; of at least LEAST possible
LEAST = 4
EVERY = 10  # steps between two looks on a GPU, where reading a value waits for the device
AT_CONSTANT = 5e-4  # of the loss of a constant output, relative


class Guard(pl.Callback):
    """Watches loss and embeddings; warns, or stops the run.

    - diverged: the loss is NaN or inf;
    - collapsed: for WINDOW looks, one a step on a CPU, the embeddings' spread was below SPREAD,
      or the loss within AT_CONSTANT of the loss of a constant output; or after an epoch the
      embeddings' effective rank is below RANK;
    - dead head: collapsed, and ``diagnose`` said before the first step that the head is dead,
      saturated, constant or broken.

    A run that recovers is ok again; the events stay on record.
    """

    def __init__(self, *, born_dead: bool, stop: bool, tell: Callable[[str], None]) -> None:
        self.born_dead, self.stop, self.tell = born_dead, stop, tell
        self.verdict, self.reason = "ok", ""
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
        if trainer.is_last_batch and possible >= LEAST and bool(embeddings.isfinite().all()):
            self._rank = effective_rank((embeddings - embeddings.mean(0)).double())
        self._judge(trainer, constant)

    def _judge(self, trainer: pl.Trainer, constant: float) -> None:
        losses, spreads = zip(*self._recent)
        full = len(losses) == WINDOW
        verdict, reason = "ok", ""
        if not math.isfinite(losses[-1]):
            verdict, reason = "diverged", f"the loss is {losses[-1]}; lower the learning rate"
        elif full and max(spreads) < SPREAD:
            verdict = "collapsed"
            reason = f"all embeddings point the same way (spread {spreads[-1]:.2g})"
        elif full and max(abs(x - constant) for x in losses) < AT_CONSTANT * max(1, abs(constant)):
            verdict = "collapsed"
            reason = f"the loss sits at {constant:.4g}, that of a constant output"
        elif self._rank < RANK:
            verdict, reason = "collapsed", f"embeddings have effective rank {self._rank:.2f}"
        if verdict == "collapsed" and self.born_dead:
            verdict = "dead head"
        if verdict != self.verdict:
            self.events.append({"step": trainer.global_step, "verdict": verdict, "reason": reason})
            word = f"{verdict}: {reason}" if reason else "recovered"
            self.tell(f"step {trainer.global_step}: {word}")
        self.verdict, self.reason = verdict, reason
        if self.stop and trainer.strategy.reduce_boolean_decision(verdict != "ok", all=False):
            self.stopped = trainer.should_stop = True
            if verdict == "ok":
                self.verdict, self.reason = "collapsed", "on another rank"

    def state_dict(self) -> dict[str, Any]:
        recent = [list(pair) for pair in self._recent]
        names = {"verdict": self.verdict, "reason": self.reason, "events": self.events}
        return names | {"recent": recent, "rank": self._rank}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.verdict, self.reason = state_dict["verdict"], state_dict["reason"]
        self.events, self._rank = list(state_dict["events"]), state_dict["rank"]
        self._recent.extend((loss, spread) for loss, spread in state_dict["recent"])
