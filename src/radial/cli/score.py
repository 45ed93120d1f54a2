"""`radial score` and `radial eval` after their options are parsed: compute, print, write."""

from __future__ import annotations

import json as to_json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from radial.files import check_writable, write_atomically
from radial.metrics.registry import parse
from radial.scoring.card import ranking
from radial.scoring.score import score
from radial.scoring.settings import EvalSettings, Settings
from radial.scoring.table import print_cards, write_json
from radial.terminal import Bars
from radial.training.conventions import EVALUATION, SCORES


def score_targets(
    targets: Sequence[str],
    settings: Settings,
    *,
    by: str | None = None,
    json: str | None = None,
    html: str | None = None,
) -> int:
    check_writable(None if json == "-" else json, html)
    if by is not None:
        name = parse(by)[0]
        asked = None if settings.scores is None else {parse(one)[0] for one in settings.scores}
        if asked is not None and name not in asked:
            raise ValueError(f"--by {by} is not among --scores {', '.join(settings.scores or ())}")
    if html is not None:
        if settings.data is None:
            raise ValueError("--html draws features: give --data as well")
        from radial.presentation.pages import check_plotly
        from radial.scoring.page import page

        check_plotly()  # now, not after minutes of computing
    targets = list(dict.fromkeys(targets))
    with Bars() as progress:
        cards = score(targets, settings, figures=html is not None, progress=progress)
    order, sentences = ranking(cards, by)
    if json != "-":
        print_cards(order, sentences, Console())
    _write(json, {"ranking": sentences, "cards": [card.to_dict() for card in order]})
    for card in cards:
        _keep(card.directory, SCORES, card.to_dict())
    if html is not None:
        write_atomically(html, page(order, sentences))
        print(f"page: {html}", file=sys.stderr if json == "-" else sys.stdout)
    return 0


def evaluate_targets(
    targets: Sequence[str], settings: EvalSettings, *, json: str | None = None
) -> int:
    from radial.scoring.evaluate import evaluate, print_evaluations

    check_writable(None if json == "-" else json)
    results = []
    with Bars() as progress:
        for target in targets:
            results.append(evaluate(target, settings, progress=progress))
            directory = results[-1].pop("directory")
            _keep(directory, EVALUATION, results[-1])
    if json != "-":
        print_evaluations(results, Console())
    _write(json, results)
    return 0


def _keep(directory: str | Path | None, name: str, values: Any) -> None:
    """Beside the run's result.json; where that cannot be written, what was found still counts."""
    if directory is None:
        return
    path = Path(directory) / name
    try:
        if path.is_file() and "asked" in to_json.loads(path.read_bytes()):
            print(f"radial: {path} belongs to a study and stays as it is", file=sys.stderr)
            return
    except (OSError, ValueError):
        pass  # unreadable: it is replaced
    try:
        write_json(path, values)
    except OSError as error:
        print(f"radial: {name} was not written: {error}", file=sys.stderr)


def _write(file: str | None, values: Any) -> None:
    if file == "-":
        print(to_json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False))
    elif file is not None:
        write_json(file, values)
