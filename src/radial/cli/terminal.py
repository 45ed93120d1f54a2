"""What commands share: one parser with one way of spelling, and how far a long task is."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, NoReturn, get_type_hints

from radial.checks import as_kind, did_you_mean, printable
from radial.presentation import amount, duration

Run = Callable[[argparse.Namespace], int]
Command = Callable[["Parser"], Run]  # adds its options to a parser; what is returned runs it
Commands = Mapping[str, tuple[str, Any]]  # name: (one line, a Command or Commands or where it is)


class Parser(argparse.ArgumentParser):
    """One way of spelling for all commands, and a ValueError where argparse would leave.

    ``--save_every`` is ``--save-every``; a switch is ``--knn``, ``--no-knn`` or ``--knn false``;
    a list is ``--scores rankme,lidar``. Options that were not given are not in the namespace where
    they come from a class of settings, so that presets and files can stand between.
    """

    def __init__(self, prog: str, text: str = "") -> None:
        super().__init__(prog, description=text, allow_abbrev=False, formatter_class=_Formatter)

    def add_settings(self, kind: type[Any]) -> None:
        """An option for each field of a dataclass, told by the ``Args`` of its docstring.

        Args:
            kind: the dataclass; its ``GROUPS``, if it has them, are {title: names of fields}.
        """
        told, kinds = described(kind), get_type_hints(kind)
        usual = {field.name: _usual(field.default) for field in fields(kind)}
        groups = getattr(kind, "GROUPS", {"settings": " ".join(usual)})
        for title, names in groups.items():
            group = self.add_argument_group(title)
            for name in names.split():
                flag, text = _flag(name), told[name] + usual[name]
                if kinds[name] in (bool, bool | None):
                    flags = flag, f"--no-{flag[2:]}"
                    group.add_argument(*flags, action=_Switch, dest=name, help=text)
                    continue
                group.add_argument(
                    flag,
                    dest=name,
                    type=Kind(kinds[name]),
                    default=argparse.SUPPRESS,
                    metavar=_metavar(kinds[name]),
                    help=text,
                )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, extra = self.parse_known_args(args, namespace)
        if extra:
            flags = [flag for action in self._actions for flag in action.option_strings]
            close = did_you_mean(extra[0].partition("=")[0], flags)
            what = "option" if extra[0].startswith("-") else "argument"
            self.error(f"unknown {what} {extra[0]!r}{close}")
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(list(self._spelled(words)), namespace)

    def _spelled(self, words: list[str]) -> Iterable[str]:
        switches = {
            flag
            for action in self._actions
            if isinstance(action, _Switch)
            for flag in action.option_strings
        }
        words = words[::-1]
        while words:
            word = words.pop()
            if not word.startswith("--"):
                yield word
                continue
            name, equals, value = word.partition("=")
            name = _flag(name[2:])
            if name in switches and not equals:
                following = words and words[-1].lower() in ("true", "false", "yes", "no")
                equals, value = "=", words.pop() if following else "true"
            yield name + equals + value

    def error(self, message: str) -> NoReturn:
        raise ValueError(re.sub(r"^argument (\S*?)(/\S+)?: ", r"\1 ", message))


class _Switch(argparse.Action):
    """``--knn=true`` and ``--no-knn=true``, as the parser spells them out."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, **options)

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        value = as_kind(str(option_string), values, bool)
        setattr(namespace, self.dest, value is not str(option_string).startswith("--no-"))


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, _Switch):
            return f"--[no-]{action.option_strings[0][2:]}"
        return super()._format_action_invocation(action)

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        if usage is None:  # forty options are listed below, not here
            words = [
                action.metavar or action.dest for action in actions if not action.option_strings
            ]
            usage = " ".join([self._prog, *map(str, words), "[options]"])
        return super()._format_usage(usage, actions, groups, prefix)


class Kind:
    """A type of argparse that tells in words what a value must be.

    Args:
        kind: an annotation, as for `radial.checks.as_kind`.
        least: the smallest whole number allowed.
    """

    def __init__(self, kind: Any, least: int | None = None) -> None:
        self.kind, self.least = kind, least

    def __call__(self, text: str) -> Any:
        try:
            value = as_kind("", text, self.kind)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error).strip()) from None
        if self.least is not None and value < self.least:
            raise argparse.ArgumentTypeError(f"must be at least {self.least}, not {value}")
        return value


WHOLE, NUMBER, NAMES = Kind(int), Kind(float), Kind(tuple[str, ...])
POSITIVE = Kind(int, least=1)


def described(kind: type[Any]) -> dict[str, str]:
    """What the ``Args`` sections of a class and its bases say of each argument."""
    told = (inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__))
    sections = "\n".join(doc.partition("Args:\n")[2].partition("\n\n")[0] for doc in told)
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", sections, flags=re.MULTILINE)
    return {name: " ".join(text.split()).rstrip(".") for name, text in found}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _usual(default: object) -> str:
    if default is None or default is False or default == ():
        return ""
    shown = ",".join(default) if isinstance(default, tuple) else str(default)
    return " (on)" if default is True else f" ({shown})"


def _metavar(kind: Any) -> str:
    text = str(kind)
    for word, shown in (("Literal", "NAME"), ("tuple", "NAMES"), ("int", "N"), ("float", "X")):
        if word in text:
            return shown
    return "TEXT"


def dispatch(prog: str, text: str, commands: Commands, words: list[str]) -> int:
    """Run the command that ``words`` begin with, or print what there is."""
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, commands)) + 1
        print(f"{text}\n\nusage: {prog} COMMAND [options]\n")
        for name, (told, _) in commands.items():
            print(f"  {name:{width}} {told}")
        print(f"\n`{prog} COMMAND --help` lists the options of a command.")
        return 0
    name, *rest = words
    if name not in commands:
        close = did_you_mean(name, commands)
        raise ValueError(f"unknown command {name!r}; known: {', '.join(commands)}{close}")
    told, command = commands[name][0], found(commands[name][1])
    if isinstance(command, Mapping):
        return dispatch(f"{prog} {name}", f"{prog} {name}: {told}", command, rest)
    parser = Parser(f"{prog} {name}", f"{told[0].upper()}{told[1:]}.")
    run: Run = command(parser)
    return run(parser.parse_args(rest))


def found(home: Any) -> Any:
    """A command, or commands: as they are, or imported from "module:name"."""
    if not isinstance(home, str):
        return home
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


def warn(line: str) -> None:
    print(f"radial: {printable(line)}", file=sys.stderr)


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
