"""Which images a subset needs, against the definition."""

from __future__ import annotations

import random

import pytest

from radial.data import DataError
from radial.open_images.arrivals import Plan
from radial.open_images.manifest import Manifest, Row


@pytest.mark.parametrize("seed", range(30))
def test_the_plan_does_not_depend_on_the_order(seed: int) -> None:
    """Against the definition, with images of three classes found good or gone in any order."""
    draw = random.Random(seed)
    sizes = {name: 8 + draw.randrange(6) for name in "abc"}
    rows = tuple(
        Row(f"{kind}{rank:015x}", "train", f"/m/{kind}", name, rank,
            "chosen" if rank < 8 else "reserve", 0)
        for kind, name in enumerate(sizes) for rank in range(sizes[name])
    )  # fmt: skip
    lost = {row.id for row in rows if draw.random() < 0.2}
    there = {n: [r for r in rows if r.class_name == n and r.id not in lost] for n in sizes}
    count = min(8, *map(len, there.values()))
    plan, asked, results = Plan(Manifest(rows=rows)), [], set()
    while True:
        for _ in range(draw.randrange(1, 5)):
            row = plan.next() or (None if asked else plan.tie())
            asked += [] if row is None else [row]
        if not asked:
            break
        row = asked.pop(draw.randrange(len(asked)))
        (plan.gone if row.id in lost else plan.good)(row)
    final = list(plan.final_rows())
    out = next((name for name in sizes if len(there[name]) == count < 8), None)
    assert plan.limiting == out
    assert plan.target == count
    assert plan.done == plan.total == 3 * count
    chosen = [row.id for row in final if row.role == "chosen"]
    assert chosen == [row.id for name in sizes for row in there[name][:count]]
    for row in final:
        if row.rank <= there[row.class_name][count - 1].rank or row.class_name == out:
            results.add((row.id in lost, row.role))
        else:
            assert row.role == ("cut" if row.rank < 8 else "reserve")
    assert results <= {(True, "gone"), (False, "chosen")}


def test_of_two_classes_that_ran_out_the_first_is_named() -> None:
    """Though all that the subset needs is known before the first one's last row was asked for."""
    rows = tuple(
        Row(f"{kind}{rank:015x}", "train", f"/m/{kind}", name, rank, "chosen", 0)
        for kind, name in enumerate("abc") for rank in range(3)
    )  # fmt: skip
    plan = Plan(Manifest(rows=rows))
    plan.gone(rows[3])
    while row := plan.next():
        plan.good(row)
    assert plan.limiting == "b"
    assert plan.tie() == rows[2]
    plan.gone(rows[2])
    assert (plan.tie(), plan.limiting, plan.target) == (None, "a", 2)
    assert [row.role for row in plan.final_rows()] == (
        ["chosen", "chosen", "gone", "gone", "chosen", "chosen", "chosen", "chosen", "cut"]
    )


def test_a_manifest_without_images_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to fetch"):
        Plan(Manifest(rows=()))
