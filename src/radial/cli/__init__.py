"""The `radial` command: parse, import late, call one function."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from radial import __version__
from radial.checks import one_line, with_hint
from radial.cli.terminal import Commands, Parser, Run, dispatch, found
from radial.processes import keep_freed_memory

COMMANDS: Commands = {
    "train": ("train a backbone without labels", "radial.cli.runs:train"),
    "score": ("rank checkpoints and models without labels", "radial.cli.runs:score"),
    "eval": ("accuracy of checkpoints and models, with labels", "radial.cli.runs:evaluate"),
    "export": ("weights of a run as files that other code reads", "radial.cli.runs:export"),
    "study": ("many runs from one plan: run, audit, report", "radial.cli.study:COMMANDS"),
    "tune": ("hyperparameters chosen without labels", "radial.cli.study:tune"),
    "data": ("Open Images subsets, statistics, contact sheets", "radial.cli.data:COMMANDS"),
    "demo": ("a small study on embedded digits and its report", "radial.cli.study:demo"),
    "completion": ("what a shell needs to complete these commands", "radial.cli:completion"),
    "cache": ("what is kept of features, pixels and code; clear it", "radial.cli.doctor:cache"),
    "doctor": ("versions, devices, extras, caches: for an issue", "radial.cli.doctor:doctor"),
    "version": ("the version of radial", "radial.cli:version"),
}
TEXT = f"radial {__version__}: self-supervised learning, measurable without labels"


UNFORESEEN = "unforeseen"  # what an error begins with that no check put into words


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-V"], ["--version"]):
        words = ["version"]
    keep_freed_memory()
    try:
        code = dispatch("radial", TEXT, COMMANDS, words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads, such as `head`, has enough; files are written
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        named = error.filename is not None and error.strerror
        return fail(f"{error.filename}: {error.strerror}" if named else str(error))
    except ValueError as error:
        return fail(str(error))
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (told := with_hint(error)) is not error:
            return fail(str(told))
        if os.environ.get("RADIAL_TRACEBACK"):
            raise
        kind = type(error).__name__  # ours, or a library's on what no check foresaw
        return fail(f"{UNFORESEEN} {kind}: {one_line(error)} (RADIAL_TRACEBACK=1 shows where)")
    except KeyboardInterrupt as stop:
        print(f"radial: interrupted; {stop}".rstrip("; "), file=sys.stderr)
        return 130


def fail(message: str) -> int:
    """One line, exit code 2."""
    print(f"radial: error: {one_line(message, None)}", file=sys.stderr)
    return 2


def version(parser: Parser) -> Run:
    def run(_: object) -> int:
        print(__version__)
        return 0

    return run


def completion(parser: Parser) -> Run:
    import shtab

    shells = shtab.SUPPORTED_SHELLS
    parser.add_argument("shell", choices=shells, help=", ".join(shells))

    def run(options: object) -> int:
        whole = Parser("radial", TEXT)
        grow(whole, COMMANDS)
        print(shtab.complete(whole, vars(options)["shell"]))
        return 0

    return run


def grow(parser: Parser, commands: Commands) -> None:
    """All commands below ``parser``, with their options."""
    below = parser.add_subparsers()
    for name, (told, home) in commands.items():
        child, command = below.add_parser(name, text=told, help=told), found(home)
        if isinstance(command, dict):
            grow(child, command)
        else:
            command(child)


if __name__ == "__main__":
    sys.exit(main())
