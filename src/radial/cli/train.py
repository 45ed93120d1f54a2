"""`radial train` and `radial export`: parse, import late, call one function."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from radial.checks import as_kind, did_you_mean
from radial.cli.terminal import Parser, Run


def train(parser: Parser) -> Run:
    from radial.training.config import PRESETS, RunConfig

    add = parser.add_argument_group("where settings come from").add_argument
    add("--config", metavar="FILE", help="YAML file with any of the options below")
    add("--preset", metavar="NAME", help=f"{', '.join(PRESETS)}: the published hyperparameters")
    add("--print-config", action="store_true", help="print the settings as YAML and leave")
    add("--resume", metavar="DIR", help="go on with the run in this directory")
    add("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_settings(RunConfig)
    return _train


def _train(options: Namespace) -> int:
    from radial.processes import end_as_asked
    from radial.training.config import from_dict, preset

    end_as_asked()
    given = vars(options)
    places = ("config", "preset", "print_config", "resume", "overwrite")
    config, named, show, resumed, overwrite = (given.pop(name) for name in places)
    if resumed is not None:
        for name, used in (("config", config), ("print-config", show), ("preset", named)):
            if used:
                raise ValueError(f"--{name} is not for --resume: the run has its settings")
        if overwrite:
            raise ValueError("either --resume or --overwrite, not both")
        from radial.training.run import resume

        result = resume(resumed, **given)
    else:
        given = ({} if config is None else read_settings(config)) | given
        method = given.get("method", "simclr")
        chosen = from_dict(dict(preset(named, method) if named else {}) | given)
        if show:
            import yaml

            print(yaml.safe_dump(chosen.to_dict(), sort_keys=False), end="")
            return 0
        from radial.training.run import train

        result = train(chosen, overwrite=overwrite)
    from radial.training.build import is_leader

    if not is_leader():
        return 0
    loss = "–" if result.train_loss is None else f"{result.train_loss:.3f}"
    print(f"{result.verdict}: {result.directory} (loss {loss}, {result.seconds:.0f} s)")
    return 1 if result.stopped else 0


def read_settings(path: str | Path) -> dict[str, Any]:
    """The settings of a YAML file, each of its kind."""
    import yaml

    from radial.training.config import RunConfig

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML file: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no settings by name")
    kinds, known = get_type_hints(RunConfig), [field.name for field in fields(RunConfig)]
    for name in values:
        if name not in known:
            raise ValueError(f"{path}: unknown setting {name!r}{did_you_mean(name, known)}")
    return {name: as_kind(f"{path}: {name}", v, kinds[name]) for name, v in values.items()}


def export(parser: Parser) -> Run:
    add = parser.add_argument
    add("run", help="directory of a run, or one of its checkpoints")
    add("--to", metavar="FILE", help="backbone as .safetensors, with the keys of its library")
    add("--head", metavar="FILE", help="projection head as .safetensors, kernels included")
    return _export


def _export(options: Namespace) -> int:
    if options.to is None and options.head is None:
        raise ValueError("nothing to export: give --to FILE, --head FILE, or both")
    from radial.training.export import export

    for line in export(options.run, backbone=options.to, head=options.head):
        print(line)
    return 0
