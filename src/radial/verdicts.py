"""Every word and every threshold for what went wrong: dead, constant, collapsed, diverged.

Four rooms ask, each with what it can see: `radial.rbf.health` has a head and features,
the guard of a training has losses and embeddings step by step, a score card has the outputs for
images, and the audit of a study has a table, often of nothing but losses and accuracies. What
answers them stands here, once. Numbers in, words out; no torch, no pandas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

# Verdicts of a training. A run that ended in one of FALLEN has learned nothing, or lost it.
OK, DEAD_HEAD, COLLAPSED, DIVERGED = "ok", "dead head", "collapsed", "diverged"
FALLEN = (DEAD_HEAD, COLLAPSED, DIVERGED)
# What a score card says beside these: of a network whose outputs are NaN or inf; of a live head
# whose kernels are dead; of random weights; of a file that was not run on images.
BROKEN, DEAD_KERNELS, UNTRAINED, NOT_MEASURED = (
    "broken",
    "dead kernels",
    "untrained",
    "not measured",
)
# The status of a head on features. One that is BORN_DEAD before the first step cannot learn.
ALIVE, DEAD, SATURATED, CONSTANT = "alive", "dead", "saturated", "constant"
BORN_DEAD = (DEAD, SATURATED, CONSTANT, BROKEN)

# Of a layer of kernels
TAKES_ALL = 0.99  # share of a sample's activation that makes a kernel its only one
MOST_DEAD = 0.5  # of the kernels: from there on the layer is dead
DEAD_BEYOND = 6.0  # ε‖c_i − c_j‖ of a Gaussian: exp(−36) is below what float32 resolves
UNMOVED = 1e-3  # relative change of a kernel score since the first step

# Of embeddings. Spread is √d times the deviation of unit-length embeddings, so that its square is
# their total variance: 1 isotropic, 0 all alike. The audit used 0.05 where the guard and the score
# card had 0.01 (there as a variance of 1e-4), and so called runs constant that train well with
# nearly parallel embeddings: MoCo's best with the default head on digits has 0.04.
SPREAD = 0.01  # up to it all embeddings point the same way
# Effective rank. diagnose() had 2, for any width: an output of two dimensions, whose rank is 2 at
# most, was always collapsed. The guard's and the card's 1.5, of at least 4 possible, holds for all.
RANK = 1.5  # below it embeddings lie on a line
FEWEST_DIMENSIONS = 4
# Of a head's raw output, variance / mean square. Smaller than SPREAD²: a head may start with all
# outputs nearly parallel and learn; this is what float32 resolves no variance below.
NO_VARIANCE = 1e-6

# Of retrieval of views. A perfect rank counts 1, so the score is at least the share of perfect
# ranks, and at 0.99 no run can be more than one point better. Runs less than a point apart were
# ordered as their accuracy in 57 % of the pairs of our own runs: hardly more than by a coin.
ROOM = 0.01

# Of losses
WINDOW = 20  # steps in a row that must agree
AT_CONSTANT = 5e-4  # of the loss of a constant output, relative: for single steps, WINDOW of them
# For the mean over an epoch: how near to c, the loss of a constant output, a loss L counts as c.
#   above: L ≥ c − margin, where a run that trains stays below c
#   below: L ≤ c + margin, where c is the smallest loss there is, the trivial solution
#   at:    |L − c| ≤ margin · c, where a run that trains may be above c as well
MARGINS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "simclr": ("above", 1e-3),  # c = ln(2B − 1)
        "moco": ("above", 0.03),  # c = ln(Q + 1)
        "swav": ("above", 0.01),  # c = ln P
        "byol": ("below", 5e-4),  # c = −1
        "simsiam": ("below", 5e-4),  # c = −1
        "barlow_twins": ("at", 1e-3),  # c = D
        "vicreg": ("at", 1e-3),  # c = 25 (1 − √10⁻⁴)
        "dino": ("above", 0.01),  # c = ln P
        "nnclr": ("above", 1e-3),  # c = ln B
        "supervised": ("above", 1e-3),  # c = ln C
        "supcon": ("above", 1e-3),  # c = ln(2B − 1)
    }
)
# A queue of older keys puts a live run's loss anywhere around c: on digits good MoCo runs end at
# 6.21 and at 6.64 where c is 6.24. There the loss is evidence only beside what else is known.
QUEUED = ("moco",)
CLOSED = 0.05  # of the gap to the default head's loss, at least
CLEAR = 10  # margins between c and the loss of a default head that is live


def constant_loss(
    method: str,
    *,
    batch_size: float | None = None,
    queue_size: float | None = None,
    prototypes: float | None = None,
    output_dim: float | None = None,
    classes: float | None = None,
    variance: float = 25.0,
) -> float:
    """The loss when every embedding is the same.

    SimCLR and SupCon ln(2B − 1), NNCLR ln B, MoCo ln(Q + 1), SwAV and DINO ln P, cross-entropy
    ln C: all candidates equally likely. BYOL and SimSiam −1: all cosines are 1. Barlow Twins D: no
    correlations. VICReg μ (1 − √10⁻⁴): no variance.

    Args:
        method: by its name.
        batch_size: B, over all ranks.
        queue_size: Q, of a queue that is full.
        prototypes: P.
        output_dim: D, the width of the embeddings.
        classes: C, of a supervised run.
        variance: μ, VICReg's weight of the variance.

    Returns:
        The loss, or NaN where the method or the size that decides is not known.

    Example:
        >>> constant_loss("simclr", batch_size=2048)
        8.31752199628717
    """
    if method in ("byol", "simsiam"):
        return -1.0
    if method == "vicreg":
        return variance * 0.99
    if method == "barlow_twins":
        return math.nan if output_dim is None else float(output_dim)
    candidates = {
        "simclr": batch_size and 2 * batch_size - 1,
        "supcon": batch_size and 2 * batch_size - 1,
        "nnclr": batch_size,
        "moco": queue_size and queue_size + 1,
        "swav": prototypes,
        "dino": prototypes,
        "supervised": classes,
    }.get(method)
    return math.log(candidates) if candidates and candidates >= 1 else math.nan


def at_constant_loss(method: str, loss: float, constant: float) -> bool:
    """Whether an epoch's loss is that of a constant output, by `MARGINS`; NaN is not."""
    kind, margin = MARGINS.get(method, ("", 0.0))
    if kind == "above":
        return loss >= constant - margin
    if kind == "below":
        return loss <= constant + margin
    return kind == "at" and abs(loss - constant) <= margin * abs(constant)


def no_room(retrieval: float) -> bool:
    """Whether so many views find their image that better runs cannot be told apart; NaN is not."""
    return retrieval >= 1.0 - ROOM


def same_direction(spread: float) -> bool:
    """Whether embeddings of this spread all point the same way; NaN, not known, is not."""
    return spread <= SPREAD


def on_a_line(rank: float, possible: int) -> bool:
    """Whether this effective rank, of so many possible, is that of points on a line."""
    return possible >= FEWEST_DIMENSIONS and rank < RANK


def head_status(
    *,
    finite: bool,
    saturated: bool,
    dead_kernels: float,
    relative_variance: float,
    effective_rank: float,
    possible_rank: int,
) -> str:
    """The status of a head by its output on features: the first that holds.

    Args:
        finite: no NaN or inf in the output.
        saturated: one kernel of a layer takes every sample.
        dead_kernels: share of the kernels of the worst layer that are dead.
        relative_variance: total variance of the output / its mean square.
        effective_rank: of the centred output.
        possible_rank: the largest that this could be.

    Returns:
        broken, saturated, dead, constant, collapsed or alive.
    """
    if not finite:
        return BROKEN
    if saturated:
        return SATURATED
    if dead_kernels >= MOST_DEAD:
        return DEAD
    if relative_variance < NO_VARIANCE:
        return CONSTANT
    return COLLAPSED if on_a_line(effective_rank, possible_rank) else ALIVE


def run_verdict(
    method: str,
    losses: Sequence[float],
    spreads: Sequence[float],
    *,
    constant: float,
    rank: float,
    born_dead: bool,
) -> tuple[str, str]:
    """The verdict on a run while it trains, and why.

    - diverged: the last loss is NaN or inf;
    - collapsed: in each of the last WINDOW steps the embeddings pointed the same way, or the loss
      was that of a constant output (not with a queue, see `QUEUED`); or the embeddings of the
      last epoch lie on a line;
    - dead head: collapsed, and the head was dead before the first step.

    Args:
        method: by its name.
        losses: of the last steps, the latest last.
        spreads: of the embeddings in these steps.
        constant: the loss of a constant output.
        rank: effective rank of the embeddings at the end of the last epoch, inf where not known.
        born_dead: the status of the head before the first step was one of BORN_DEAD.

    Returns:
        One of ok, dead head, collapsed and diverged; and one line, empty for ok.
    """
    full = len(losses) >= WINDOW
    near = AT_CONSTANT * max(1.0, abs(constant))
    reason = ""
    if not math.isfinite(losses[-1]):
        return DIVERGED, f"the loss is {losses[-1]}; lower the learning rate"
    if full and all(same_direction(spread) for spread in spreads):
        reason = f"all embeddings point the same way (spread {spreads[-1]:.2g})"
    elif full and method not in QUEUED and all(abs(loss - constant) < near for loss in losses):
        reason = f"the loss sits at {constant:.4g}, that of a constant output"
    elif rank < RANK:
        reason = f"embeddings have effective rank {rank:.2f}"
    if not reason:
        return OK, ""
    return (DEAD_HEAD if born_dead else COLLAPSED), reason


def constant_output(
    method: str,
    *,
    verdict: str,
    loss: float,
    constant: float,
    spread: float = math.nan,
    learned: bool = False,
) -> str:
    """Why a finished run must have a constant output, or diverged; empty where nothing says so.

    Training saw every step: where it says so, that is it. Otherwise the epoch's loss is evidence,
    unless something stronger speaks against it: embeddings that were seen to differ, or labels.

    Args:
        method: by its name.
        verdict: of the training; "" or any other word where none is known.
        loss: of the last epoch.
        constant: the loss of a constant output.
        spread: of the last epoch's embeddings, NaN where they were not looked at.
        learned: even the low end of the accuracy's interval is above the accuracy at the start.

    Returns:
        The evidence in one line.

    Example:
        >>> constant_output("moco", verdict="imported", loss=8.3, constant=8.318)
        "loss 8.3: a constant output's is 8.318"
        >>> constant_output("moco", verdict="ok", loss=8.3, constant=8.318, spread=0.04)
        ''
    """
    if verdict in FALLEN:
        return verdict
    if learned or not at_constant_loss(method, loss, constant) or spread > SPREAD:
        return ""
    seen = "" if math.isnan(spread) else f", and the embeddings' spread is {spread:.2g}"
    return f"loss {loss:.6g}: a constant output's is {constant:.6g}{seen}"
