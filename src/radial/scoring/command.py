"""`radial score` and `radial eval` after their options are parsed: compute, print, write."""

from __future__ import annotations

import json as to_json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from radial.files import write_atomically
from radial.scoring.card import ranking
from radial.scoring.results import print_cards, write_json
from radial.scoring.scoring import score
from radial.scoring.settings import EvalSettings, Settings
from radial.training.directory import EVALUATION, SCORES


def score_targets(
    targets: Sequence[str],
    settings: Settings,
    *,
    by: str | None = None,
    json: str | None = None,
    html: str | None = None,
) -> int:
    _check_files(json, html)
    if html is not None and settings.data is None:
        raise ValueError("--html draws features: give --data as well")
    with _progress() as progress:
        cards = score(targets, settings, figures=html is not None, progress=progress)
    order, sentences = ranking(cards, by)
    for card in cards:
        if card.kind == "run":
            write_json(Path(card.target) / SCORES, card.to_dict())
    _write(json, {"ranking": sentences, "cards": [card.to_dict() for card in order]})
    if json != "-":
        print_cards(order, sentences, Console())
    if html is not None:
        from radial.scoring.page import page

        write_atomically(html, page(order, sentences))
        print(f"page: {html}")
    return 0


def evaluate_targets(
    targets: Sequence[str], settings: EvalSettings, *, json: str | None = None
) -> int:
    from radial.scoring.labels import evaluate, print_evaluations

    _check_files(json)
    with _progress() as progress:
        results = [evaluate(target, settings, progress=progress) for target in targets]
    for result in results:
        if result["kind"] == "run":
            write_json(Path(result["target"]) / EVALUATION, result)
    _write(json, results)
    if json != "-":
        print_evaluations(results, Console())
    return 0


def _write(file: str | None, values: Any) -> None:
    if file == "-":
        print(to_json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False))
    elif file is not None:
        write_json(file, values)


def _check_files(*files: str | None) -> None:
    """A file that cannot be written is an error now, not after minutes of computing."""
    for file in files:
        if file in (None, "-"):
            continue
        path = Path(str(file))
        if path.is_dir() or (path.parent.exists() and not path.parent.is_dir()):
            raise ValueError(f"cannot write {file}: it is a directory, or its parent is a file")


class _progress:
    """A bar on a terminal, nothing elsewhere; called with (what, done, total)."""

    def __enter__(self) -> _progress:
        console = Console(stderr=True)
        self.bar = Progress(console=console, transient=True, disable=not console.is_terminal)
        self.tasks: dict[str, Any] = {}
        self.bar.start()
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.bar.add_task(what, total=total)
        self.bar.update(self.tasks[what], completed=done)

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
