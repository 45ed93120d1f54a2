"""The `radial` command: parse, import late, call one function."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from radial import __version__
from radial.checks import one_line

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

LISTS = ("--loggers", "--monitor", "--scores", "--protocol")  # of names, with commas

USAGE = f"""radial {__version__}: self-supervised learning, measurable without labels

usage: radial COMMAND [options]

  train    train a backbone with a method, a head and a dataset
  score    report card of checkpoints, without labels
  eval     accuracy of a checkpoint, with labels
  export   write a trained backbone, or its kernels, to a file
  study    many runs from one plan: run, import, audit, report
  data     balanced Open Images subsets, statistics of a folder, contact sheets

`radial COMMAND --help` lists the options of a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        return fail(f"unknown command {command!r}; known: {', '.join(COMMANDS)}")
    try:
        return COMMANDS[command](rest)
    except OSError as error:
        named = error.filename is not None and error.strerror
        return fail(f"{error.filename}: {error.strerror}" if named else str(error))
    except ValueError as error:
        return fail(str(error))
    except KeyboardInterrupt as stop:
        print(f"radial: interrupted; {stop}".rstrip("; "), file=sys.stderr)
        return 130


def fail(message: str) -> int:
    """One line, exit code 2."""
    print(f"radial: error: {one_line(message, None)}", file=sys.stderr)
    return 2


def train_command(arguments: list[str]) -> int:
    from radial.processes import follow_environment
    from radial.training.config import RunConfig

    follow_environment()

    parser, arguments = _train_parser(), _spelled(arguments, RunConfig)
    options = _parse(parser, arguments)
    if options.preset is not None:
        from radial.training.config import preset

        parser.set_defaults(dict(preset(options.preset, options.method)))
        options = _parse(parser, arguments)
    settings = options.as_dict()
    resumed, overwrite = settings.pop("resume"), settings.pop("overwrite")
    for name in ("config", "print_config", "preset"):
        settings.pop(name, None)
        if resumed is not None and _given(name, arguments):
            raise ValueError(f"--{name} is not for --resume: the run has its settings")
    if resumed is not None:
        if overwrite:
            raise ValueError("either --resume or --overwrite, not both")
        given = {name: settings[name] for name in settings if _given(name, arguments)}
        from radial.training.run import resume

        result = resume(resumed, **given)
    else:
        from radial.training.config import from_dict

        config = from_dict(settings)
        from radial.training.run import train

        result = train(config, overwrite=overwrite)
    from radial.training.devices import is_leader

    if not is_leader():
        return 0
    loss = "–" if result.train_loss is None else f"{result.train_loss:.3f}"
    print(f"{result.verdict}: {result.directory} (loss {loss}, {result.seconds:.0f} s)")
    return 1 if result.stopped else 0


def _train_parser() -> ArgumentParser:
    from jsonargparse import ArgumentParser

    from radial.training.config import PRESETS, RunConfig

    parser = ArgumentParser(
        prog="radial train",
        description="Train a backbone without labels.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file with any of these options")
    parser.add_argument("--preset", help=f"{', '.join(PRESETS)}: the published hyperparameters")
    parser.add_argument("--resume", metavar="DIR", help="go on with the run in this directory")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_class_arguments(RunConfig)
    return parser


def score_command(arguments: list[str]) -> int:
    from radial.scoring.settings import Settings

    options = _parse(_score_parser(), _spelled(arguments, Settings)).as_dict()
    targets, by, listing = (options.pop(name) for name in ("targets", "by", "list"))
    files = {name: options.pop(name) for name in ("json", "html")}
    if listing:
        from radial.scoring.table import print_registry

        print_registry()
        return 0
    if not targets:
        raise ValueError("nothing to score: give run directories, checkpoints or model names")
    if options["scores"] is not None:
        options["scores"] = tuple(options["scores"])
    settings = Settings(**options)
    from radial.cli.score import score_targets

    return score_targets(targets, settings, by=by, **files)


def _score_parser() -> ArgumentParser:
    from jsonargparse import ArgumentParser

    from radial.scoring.settings import Settings

    parser = ArgumentParser(
        prog="radial score",
        description="Report card of checkpoints, without labels. Without --data: what the kernels "
        "of an RBFN head alone can tell.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    target = "run directory, checkpoint file, torchvision:NAME or timm:NAME (NAME@none: random)"
    parser.add_argument("targets", nargs="*", help=target)
    parser.add_argument(
        "--by",
        help="score that targets are ranked by, such as rankme@backbone; without a layer the first "
        "that all targets have",
    )
    parser.add_argument("--json", metavar="FILE", help="write the cards as JSON; - to print them")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page")
    parser.add_argument("--list", action="store_true", help="list the scores and leave")
    parser.add_class_arguments(Settings)
    return parser


def eval_command(arguments: list[str]) -> int:
    from radial.scoring.settings import EvalSettings

    options = _parse(_eval_parser(), _spelled(arguments, EvalSettings)).as_dict()
    if not _given("data", arguments):
        raise ValueError("--data is needed: labelled images to evaluate on, as for radial train")
    targets, file = options.pop("targets"), options.pop("json")
    settings = EvalSettings(**options | {"protocol": tuple(options["protocol"])})
    from radial.cli.score import evaluate_targets

    return evaluate_targets(targets, settings, json=file)


def _eval_parser() -> ArgumentParser:
    from jsonargparse import ArgumentParser

    from radial.scoring.settings import EvalSettings

    parser = ArgumentParser(
        prog="radial eval",
        description="Logistic regression and nearest neighbours on frozen features.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("targets", nargs="+", help="as for radial score")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - to print them")
    parser.add_class_arguments(EvalSettings)
    return parser


def export_command(arguments: list[str]) -> int:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="radial export", description="Get weights out of a run.", exit_on_error=False
    )
    parser.add_argument("run", help="directory of a run, or one of its checkpoints")
    parser.add_argument(
        "--to", metavar="FILE", help="backbone as .safetensors, with the keys of its library"
    )
    parser.add_argument(
        "--head", metavar="FILE", help="projection head as .safetensors, kernels included"
    )
    options = _parse(parser, arguments)
    if options.to is None and options.head is None:
        raise ValueError("nothing to export: give --to FILE, --head FILE, or both")
    from radial.training.export import export

    for line in export(options.run, backbone=options.to, head=options.head):
        print(line)
    return 0


def study_command(arguments: list[str]) -> int:
    from radial.cli.study import main

    return main(arguments)


def data_command(arguments: list[str]) -> int:
    from radial.cli.data import main

    return main(arguments)


def _parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(arguments)
    except ArgumentError as error:
        raise ValueError(_plain(str(error))) from error


def _plain(message: str) -> str:
    """What jsonargparse says of a value, without Python's names of types.

    >>> _plain('Parser key "epochs": Expected a <class "int">. Got value: ten')
    'epochs must be int, not ten'
    """
    found = re.search(r'"(\w+)".*?Expected an? (.+?)\. Got value: (.*)', message, re.DOTALL)
    if found is None:
        return message
    name, kind, value = found.groups()
    kind = re.sub(r"<class ['\"]([\w.]+)['\"]>", r"\1", kind)
    kind = re.sub(r"typing\.Literal\[(.*)\]", r"one of \1", kind)
    return f"{name} must be {kind}, not {value}"


def _spelled(arguments: list[str], options: type[Any]) -> list[str]:
    """``--save-every`` as ``--save_every``, ``--knn`` as ``--knn true``, ``--no-knn`` as
    ``--knn=false``, and lists without brackets.
    """
    switches = {field.name for field in fields(options) if "bool" in str(field.type)}
    spelled: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"]):
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        if name.startswith("--no_") and name[5:] in switches and not equals:
            name, equals, value = f"--{name[5:]}", "=", "false"
        if spelled and spelled[-1] in LISTS and not argument.startswith("["):
            argument = f"[{argument}]"  # tensorboard,wandb
        if name in LISTS and equals and not value.startswith("["):
            value = f"[{value}]"
        spelled.append(name + equals + value if name.startswith("--") else argument)
        switch = name.startswith("--") and name[2:] in switches and not equals
        if switch and following not in ("true", "false"):
            spelled.append("true")
    return spelled


def _given(name: str, arguments: list[str]) -> bool:
    return any(a == f"--{name}" or a.startswith(f"--{name}=") for a in arguments)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train_command,
    "score": score_command,
    "eval": eval_command,
    "export": export_command,
    "study": study_command,
    "data": data_command,
}

if __name__ == "__main__":
    sys.exit(main())
