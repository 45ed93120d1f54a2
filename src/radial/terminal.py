"""What commands share: verbs, one line for a mistake, and how far a long task is."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from radial.presentation.formats import amount, duration


class Parser(argparse.ArgumentParser):
    """Raises ValueError where argparse would print its usage and leave."""

    def __init__(self, command: str, text: str) -> None:
        super().__init__(prog=f"radial {command}", description=text, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def dispatch(
    command: str, usage: str, verbs: Mapping[str, Callable[[list[str]], int]], words: list[str]
) -> int:
    """Call the verb that ``words`` begin with, or print the usage."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage, end="")
        return 0
    verb, *rest = words
    if verb not in verbs:
        raise ValueError(f"unknown verb {verb!r} of radial {command}; known: {', '.join(verbs)}")
    return verbs[verb](rest)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


class Bars:
    """A bar for each ``what`` on a terminal; elsewhere a line every half a minute.

    Call it with what, done, total. Both show counts (of bytes if ``unit`` is "B"), the ``note``
    and the time ``left``; where the caller knows neither, they are reckoned since the start.
    """

    every = 30.0  # seconds from line to line

    def __enter__(self) -> Bars:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")
        self.shown = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self.tasks: dict[str, Any] = {}
        self.starts: dict[str, tuple[float, int]] = {}
        self.told = time.monotonic()
        self.shown.start()
        return self

    def __call__(
        self,
        what: str,
        done: int,
        total: int | None,
        note: str = "",
        *,
        left: float | None = None,
        unit: str = "",
    ) -> None:
        now = time.monotonic()
        start, first = self.starts.setdefault(what, (now, done))
        rate = (done - first) / max(now - start, 1e-9)
        if unit == "B" and not note and rate:
            note = f"{rate / 1e6:.1f} MB/s"
        if left is None and rate > 0 and total is not None and now > start + 1:
            left = (total - done) / rate
        wait = f"{duration(left)} left" if left else ""
        text = ", ".join(part for part in (amount(done, total, unit), note, wait) if part)
        if not self.shown.disable:
            if what not in self.tasks:
                self.tasks[what] = self.shown.add_task(what, total=total, text=text)
            self.shown.update(self.tasks[what], completed=done, total=total, text=text)
        elif now >= self.told + self.every:
            self.told = now
            print(f"radial: {what}: {text}", file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        self.shown.stop()
