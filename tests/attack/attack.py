"""The whole attack: `make attack` prints a table, promise → tries → result, and writes it.

    python tests/attack/attack.py [--share 0.1] [--no-write]

Every try is seeded. ``--share`` takes so much of each, evenly spread.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "attack"), str(ROOT / "tests")]

import fuzz  # noqa: E402
import kills  # noqa: E402
from harness import Tally, no_process_left, scratch  # noqa: E402

PAGE = ROOT / "docs" / "ATTACK.md"
BEGIN, END = "<!-- attack -->", "<!-- /attack -->"
FILES = {
    "checkpoint": 400, "resumed checkpoint": 250, "plan": 350, "config": 250, "table": 200,
    "manifest": 150, "manifest's JSON": 100, "metadata": 40, "study.yaml": 100,
    "result.json": 60, "eval.json": 60, "scores.json": 60, "run's config in a study": 60,
}  # fmt: skip
ROOM = ("train", "train --resume --epochs", "study", "fetch")  # whose disk is full


def load() -> None:
    """Import once what every child needs: none of it may start a thread."""
    import pandas  # noqa: F401
    import sklearn.datasets
    import sklearn.linear_model  # noqa: F401

    import radial.cli.data
    import radial.cli.runs
    import radial.cli.study
    import radial.open_images.fetch
    import radial.scoring.evaluate
    import radial.scoring.score
    import radial.study.audit
    import radial.study.worker
    import radial.training.run  # noqa: F401


def spread(total: int, share: float) -> list[int]:
    """Points 1 to ``total``, or a share of them."""
    count = max(1, round(total * share))
    return sorted({1 + round(n * (total - 1) / max(1, count - 1)) for n in range(count)})


def attack(share: float, only: tuple[str, ...] = ()) -> list[Tally]:
    """Everything, or what is named, in order; a line for each part as it ends."""
    load()
    dead = Tally("killed with -9 at any fsync, rename, unlink: nothing lost, the same bits")
    room = Tally("no room at any of these, or for files of a size: told, then the same bits")
    fence = Tally("a halted worker whose run was taken over writes nothing when it wakes")
    files = Tally("a damaged or hostile file: read, or one line and exit code 2; nothing run")
    left = Tally("no process is left")
    tallies = [dead, room, fence, files, left]
    with (
        scratch() as place,
        no_process_left(left),
        kills.ground(place / "ground") as (cases, base),
    ):
        for case in cases:
            if only and case.name not in only:
                continue
            home = place / re.sub(r"\W+", "-", case.name)
            total = kills.reference(case, home / "count")[0]
            points = spread(total, share)
            if case.name == "worker":
                with timed(fence, case.name):
                    kills.attack_fence(case, home / "fence", fence, points)
                continue
            with timed(dead, case.name):
                kills.attack_kills(case, home / "kills", dead, points)
            if case.name in ROOM:
                with timed(room, case.name):
                    kills.attack_room(case, home / "room", room, points[::2] or points)
        kinds = fuzz.good_files(place / "files", base)
        for kind in kinds:
            if only and kind.name not in only:
                continue
            count = FILES[kind.name if kind.name in FILES else kind.name.split()[0]]
            with timed(files, kind.name):
                home = place / "files"
                fuzz.attack(kind, max(4, round(count * share)), files, home, home / "canary")
    return tallies


class timed:
    """Adds the time of a part to its tally, and says how it went."""

    def __init__(self, tally: Tally, name: str) -> None:
        self.tally, self.name = tally, name

    def __enter__(self) -> None:
        self.began, self.tries, self.broken = time.monotonic(), *self._counts()

    def __exit__(self, *_: object) -> None:
        seconds = time.monotonic() - self.began
        self.tally.seconds += seconds
        tries, broken = self._counts()
        for fault in self.tally.broken[self.broken :]:
            print(f"broken: {fault}", file=sys.stderr)
        self.tally.kinds[self.name] = tries - self.tries
        print(
            f"{self.name}: {tries - self.tries} tries, {broken - self.broken} broken, "
            f"{seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    def _counts(self) -> tuple[int, int]:
        return self.tally.tries, len(self.tally.broken)


def table(tallies: Iterable[Tally]) -> str:
    lines = ["| promise | tries | of which | broken |", "|:---|---:|:---|---:|"]
    for tally in tallies:
        of_which = ", ".join(f"{name} {count}" for name, count in tally.kinds.items())
        lines.append(f"| {tally.promise} | {tally.tries:,} | {of_which} | {len(tally.broken)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the tries")
    parser.add_argument("--only", metavar="NAMES", help="parts of it, with commas")
    parser.add_argument("--no-write", action="store_true", help="leave docs/ATTACK.md as it is")
    options = parser.parse_args()
    began = time.monotonic()
    tallies = attack(options.share, tuple(options.only.split(",")) if options.only else ())
    minutes = (time.monotonic() - began) / 60
    told = f"{table(tallies)}\n\n`make attack` took {minutes:.0f} min."
    print(told)
    broken = [fault for tally in tallies for fault in tally.broken]
    if not options.no_write and not options.only and options.share >= 1:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{head}{BEGIN}\n{told}\n{END}{tail}", encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
