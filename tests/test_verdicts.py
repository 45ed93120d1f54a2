"""One room for what is dead, constant, collapsed or diverged."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from radial.methods import METHODS
from radial.training.build import build
from radial.verdicts import (
    MARGINS,
    WINDOW,
    at_constant_loss,
    constant_loss,
    constant_output,
    head_status,
    no_room,
    run_verdict,
)

SIZES = ("batch_size", "queue_size", "prototypes", "output_dim")


@pytest.mark.parametrize("method", METHODS)
def test_constant_loss_is_the_methods_own(method: str, config) -> None:
    parts = build(config(method=method))
    found = constant_loss(
        method,
        **{name: getattr(parts.config, name) for name in SIZES},
        classes=len(parts.data.classes),
    )
    assert found == pytest.approx(parts.method.constant_loss(parts.config.batch_size), rel=1e-12)


def test_constant_loss_that_cannot_be_known() -> None:
    assert math.isnan(constant_loss("simclr"))
    assert math.isnan(constant_loss("moco", batch_size=256, queue_size=math.nan))
    assert math.isnan(constant_loss("dino", batch_size=256))
    assert set(MARGINS) == set(METHODS)


def test_margins_where_runs_may_be_above() -> None:
    assert at_constant_loss("vicreg", 24.74, 24.75)
    assert not at_constant_loss("vicreg", 30.0, 24.75)  # before the first step
    assert at_constant_loss("simclr", 9.0, 8.3)
    assert not at_constant_loss("simclr", math.nan, 8.3)
    assert not at_constant_loss("mae", 8.3, 8.3)


@pytest.mark.parametrize(
    ("verdict", "loss", "spread", "learned", "evidence"),
    [
        ("imported", 6.5, math.nan, False, "loss 6.5: a constant output's is 6.24"),
        ("ok", 6.5, 0.005, False, "loss 6.5: a constant output's is 6.24, and the embeddings' "
                                  "spread is 0.005"),
        ("ok", 6.213, 0.04, False, ""),  # training saw that they differ
        ("imported", 6.5, math.nan, True, ""),  # labels say that it learned
        ("ok", 5.0, 0.005, False, ""),
        ("dead head", 5.0, 0.9, True, "dead head"),  # training saw every step
        ("diverged", math.nan, math.nan, False, "diverged"),
    ],
)  # fmt: skip
def test_evidence_for_a_constant_output(verdict, loss, spread, learned, evidence) -> None:
    known = {"verdict": verdict, "loss": loss, "spread": spread, "learned": learned}
    assert constant_output("moco", constant=6.24, **known) == evidence


def test_a_queue_keeps_a_live_loss_at_that_of_a_constant_output() -> None:
    """The losses of a good MoCo run may pass there; its embeddings say that it lives."""
    known = {"constant": 6.24, "rank": math.inf, "born_dead": False}
    losses, spreads = [6.24] * WINDOW, [0.3] * WINDOW
    assert run_verdict("moco", losses, spreads, **known) == ("ok", "")
    assert run_verdict("simclr", losses, spreads, **known)[0] == "collapsed"
    assert run_verdict("moco", losses, [0.001] * WINDOW, **known)[0] == "collapsed"


@pytest.mark.parametrize(("width", "status"), [(2, "alive"), (64, "collapsed")])
def test_two_dimensions_cannot_have_a_higher_rank(width: int, status: str) -> None:
    known = {"finite": True, "saturated": False, "dead_kernels": 0.0, "relative_variance": 0.5}
    assert head_status(**known, effective_rank=1.4, possible_rank=width) == status
    assert head_status(**known, effective_rank=1.7, possible_rank=width) == "alive"


def test_light_to_import() -> None:
    code = "import sys, radial.verdicts; print({'torch', 'pandas', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_no_room_left_for_retrieval() -> None:
    assert no_room(1.0)
    assert no_room(0.99)
    assert not no_room(0.989)
    assert not no_room(math.nan)
