"""What commands share: verbs, one line for a mistake, bars that show only on a terminal."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NoReturn


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
    """A bar for each ``what`` on a terminal, nothing elsewhere; call it with what, done, total."""

    def __enter__(self) -> Bars:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self.shown = Progress(console=console, transient=True, disable=not console.is_terminal)
        self.tasks: dict[str, Any] = {}
        self.shown.start()
        return self

    def __call__(self, what: str, done: int, total: int | None, note: str = "") -> None:
        if what not in self.tasks:
            self.tasks[what] = self.shown.add_task(what, total=total)
        text = f"{what} {note}".rstrip()
        self.shown.update(self.tasks[what], description=text, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        self.shown.stop()
