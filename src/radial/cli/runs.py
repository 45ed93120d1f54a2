"""`radial train`, `score`, `eval` and `export`: parse, import late, compute, print, write."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from radial.checks import as_kind, did_you_mean
from radial.cli.terminal import Bars, Parser, Run, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from radial.scoring.settings import EvalSettings, Settings

TARGET = (
    "[NAME=]TARGET[@BACKBONE][@SIZEpx]: run directory, checkpoint of any project, embeddings (npy, "
    "npz, parquet, pt, safetensors), .onnx, directory of transformers, timm or open_clip, "
    "torchvision:NAME, timm:NAME, hf:ORG/NAME, openclip:NAME@WEIGHTS (NAME@none: random), "
    "torchscript:FILE or py:MODULE:FACTORY (these two run code that comes with them)"
)


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
    from radial.documents import read_yaml
    from radial.training.config import RunConfig

    values = read_yaml(path)
    kinds, known = get_type_hints(RunConfig), [field.name for field in fields(RunConfig)]
    for name in values:
        if name not in known:
            raise ValueError(f"{path}: unknown setting {name!r}{did_you_mean(name, known)}")
    return {name: as_kind(f"{path}: {name}", v, kinds[name]) for name, v in values.items()}


def export(parser: Parser) -> Run:
    add = parser.add_argument
    add("run", nargs="?", help="directory of a run, or one of its checkpoints")
    add(
        "--to",
        nargs="+",
        default=[],
        metavar=("FILE", "DIR"),
        help="backbone as .safetensors, with the keys of its library; or `hf DIR`: a model folder "
        "with configuration, preprocessing and model card, as the Hugging Face hub has them",
    )
    add("--head", metavar="FILE", help="projection head as .safetensors, kernels included")
    add("--license", metavar="NAME", default="other", help="of the model card: apache-2.0, …")
    return _export


def _export(options: Namespace) -> int:
    to, run = list(options.to), options.run
    folder = to[:1] == ["hf"]
    if run is None and len(to) == (3 if folder else 2):
        run = to.pop()  # `radial export --to hf DIR RUN`
    if run is None:
        raise ValueError("which run? radial export RUN --to FILE, or --to hf DIR")
    if not to and options.head is None:
        raise ValueError("nothing to export: give --to FILE, --to hf DIR, or --head FILE")
    if len(to) > (2 if folder else 1) or (folder and len(to) != 2):
        raise ValueError(f"--to takes FILE, or hf DIR, not {' '.join(to)!r}")
    from radial.training.rundir import export

    lines = []
    if folder:
        from radial.training.hub import export_folder

        lines += export_folder(run, to[1], licence=options.license)
    backbone = None if folder or not to else to[0]
    for line in [*lines, *export(run, backbone=backbone, head=options.head)]:
        print(line)
    return 0


def score(parser: Parser) -> Run:
    from radial.scoring.settings import Settings

    add = parser.add_argument
    add("targets", nargs="*", metavar="TARGET", help=TARGET)
    add(
        "--by",
        metavar="SCORE",
        help="rank by this score, such as rankme@backbone; without a layer the first that all "
        "targets have",
    )
    add("--json", metavar="FILE", help="write the cards as JSON; - to print them")
    add("--html", metavar="FILE", help="write one self-contained page")
    add("--all", action="store_true", help="print all scores below the leaderboard")
    add("--list", action="store_true", help="list the scores and leave")
    parser.add_settings(Settings)
    return _score


def _score(options: Namespace) -> int:
    from radial.metrics.registry import ranking
    from radial.scoring.settings import Settings

    given = vars(options)
    names = ("targets", "by", "json", "html", "list", "all")
    targets, by, file, html, listing, every = (given.pop(name) for name in names)
    if listing:
        from radial.scoring.card import print_registry

        print_registry()
        return 0
    if not targets:
        raise ValueError("nothing to score: give run directories, checkpoints or model names")
    shown = every or "scores" in given or len(targets) == 1
    if "data" in given and not (shown or file or html):
        given["scores"] = ranking(by)  # the others take longer than the networks
    return _score_targets(list(dict.fromkeys(targets)), Settings(**given), by, file, html, shown)


def _score_targets(
    targets: Sequence[str],
    settings: Settings,
    by: str | None,
    file: str | None,
    html: str | None,
    every: bool,
) -> int:
    from radial.files import check_writable
    from radial.metrics.registry import parse
    from radial.scoring.score import score
    from radial.training.rundir import SCORES

    check_writable(None if file == "-" else file, html)
    if by is not None:
        asked = None if settings.scores is None else {parse(one)[0] for one in settings.scores}
        if asked is not None and parse(by)[0] not in asked:
            raise ValueError(f"--by {by} is not among --scores {', '.join(settings.scores or ())}")
    if html is not None:
        if settings.data is None:
            raise ValueError("--html draws features: give --data as well")
        from radial.presentation import check_plotly

        check_plotly()  # now, not after minutes of computing
    with Bars() as progress:
        result = score(
            targets, settings=settings, by=by, figures=html is not None, progress=progress
        )
    for card in result:  # files first: whoever reads the table may not read it to its end
        _keep(card.directory, SCORES, card.to_dict())
    if html is not None:
        result.to_html(html)
    _write(file, result.to_dict())
    if file != "-":
        result.show(every=every)
    if html is not None:
        print(f"page: {html}", file=sys.stderr if file == "-" else sys.stdout)
    return 0


def evaluate(parser: Parser) -> Run:
    from radial.scoring.settings import EvalSettings

    parser.add_argument("targets", nargs="+", metavar="TARGET", help="as for radial score")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - to print them")
    parser.add_settings(EvalSettings)
    return _evaluate


def _evaluate(options: Namespace) -> int:
    from radial.scoring.settings import EvalSettings

    given = vars(options)
    targets, file = given.pop("targets"), given.pop("json")
    if "data" not in given:
        raise ValueError("--data is needed: labelled images to evaluate on, as for radial train")
    return _evaluate_targets(targets, EvalSettings(**given), file)


def _evaluate_targets(targets: Sequence[str], settings: EvalSettings, file: str | None) -> int:
    from rich.console import Console

    from radial.files import check_writable
    from radial.scoring.evaluate import evaluate_target, print_evaluations
    from radial.scoring.models import targets_of
    from radial.training.rundir import EVALUATION

    check_writable(None if file == "-" else file)
    results = []
    with Bars() as progress:
        for target in targets_of(targets):
            results.append(evaluate_target(target, settings.data, settings, progress=progress))
            _keep(results[-1].pop("directory"), EVALUATION, results[-1])
    _write(file, results)
    if file != "-":
        print_evaluations(results, Console())
    return 0


def _keep(directory: str | Path | None, name: str, values: Any) -> None:
    """Beside the run's result.json; where that cannot be written, what was found still counts."""
    if directory is None:
        return
    from radial.documents import parse_json
    from radial.files import write_json

    path = Path(directory) / name
    try:
        if path.is_file() and "asked" in parse_json(path.read_bytes()):
            warn(f"{path} belongs to a study and stays as it is")
            return
    except (OSError, ValueError):
        pass  # unreadable: it is replaced
    try:
        write_json(path, values)
    except OSError as error:
        warn(f"{name} was not written: {error}")


def _write(file: str | None, values: Any) -> None:
    from radial.files import write_json

    if file == "-":
        print(json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False))
    elif file is not None:
        write_json(file, values)
