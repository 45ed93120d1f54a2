"""Published tables as runs of a study (see exports.py for what such tables get wrong)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.files import write_atomically
from radial.study.importing.exports import PUBLISHED, SCORES, Imported, read_pair
from radial.study.plan import MACHINE
from radial.study.store import SOURCE, STUDY, Store, Tell
from radial.training.config import RunConfig

if TYPE_CHECKING:
    from pandas import DataFrame

FOUND = ("verdict", "reason", "train_loss", "val_loss", "constant_loss", "steps", "seconds")
# Settings whose names mean something else in a table of runs: number format, monitoring.
HIDDEN = (*MACHINE, "precision", "knn")


def read_export(
    train_csv: Path | str, eval_csv: Path | str, *, tell: Tell | None = None
) -> DataFrame:
    """The runs of one export, a row each, in the order of the training table.

    Unfinished runs and rows without a partner are left out, and ``tell`` (by default a warning)
    says which. Missing columns, names that occur twice and numbers that are none are errors.
    """
    import pandas as pd

    from radial.study.table import ONLY_RBFN

    def row(run: Imported) -> dict[str, Any]:
        settings = {field.name: getattr(run.config, field.name) for field in fields(RunConfig)}
        if not run.config.head.startswith("rbfn"):
            settings |= dict.fromkeys(ONLY_RBFN)
        probe = run.evaluation["probes"][PUBLISHED]
        return {
            "run": run.run,
            "source": run.source["source"],
            "index": run.source["index"],
            **{name: value for name, value in settings.items() if name not in HIDDEN},
            **{name: run.result[name] for name in FOUND},
            **{name: probe[name] for name in SCORES},
            "epoch": run.result["epochs"],
        }

    frame = pd.DataFrame([row(run) for run in read_pair(Path(train_csv), Path(eval_csv), tell)])
    numbers = [*SCORES, *(name for name in FOUND if name not in ("verdict", "reason"))]
    return frame.astype(dict.fromkeys(numbers, float))


def import_exports(pairs: Sequence[tuple[Path, Path]], out: Path, *, tell: Tell) -> int:
    """Write the runs of exports, pairs of a training and an evaluation CSV, into a study.

    Everything is read and checked before anything is written. A run that is there already is
    skipped; one that is there with other content is an error, and so is another table under the
    name of one that is there. Returns how many runs were written.
    """
    store = Store(Path(out))
    _check_place(store)
    there = dict(_sources(store))
    places = {(source.get("source"), source.get("index")): run for run, source in there.items()}
    new: dict[str, Imported] = {}
    for train_csv, eval_csv in pairs:
        for run in read_pair(Path(train_csv), Path(eval_csv), tell):
            _check_same(run, there.get(run.run, run.source))
            place = (run.source["source"], run.source["index"])
            if places.setdefault(place, run.run) != run.run:
                raise ValueError(
                    f"{train_csv}: another table of that name is imported already; rename one"
                )
            new[run.run] = run
            there[run.run] = run.source
    written = sum([_write(store, run, tell) for run in new.values()])
    tell(f"{written} runs imported into {out}, {len(new) - written} were there already")
    return written


def _check_place(store: Store) -> None:
    if store.path.exists() and not store.path.is_dir():
        raise ValueError(f"{store.path} is a file, not a study's directory")
    if (store.path / STUDY).is_file():
        store.study()  # of a version that can be read
    elif store.path.is_dir() and any(store.path.iterdir()) and not store.runs():
        raise ValueError(f"{store.path} is not empty and not a study: choose another --out")


def _check_same(run: Imported, before: dict[str, Any]) -> None:
    if changed := [name for name in run.source if before.get(name) != run.source[name]]:
        raise ValueError(
            f"{run.source['source']}, run {run.source['name']}: imported before, as {run.run}, "
            f"with another {', '.join(changed)}; import into another directory"
        )


def _sources(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Id and source of each run that was imported before."""
    for run in store.runs():
        path = store.run(run) / SOURCE
        try:
            source = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise ValueError(f"{path} is not the source of an imported run: {error}") from error
        if not isinstance(source, dict):
            raise ValueError(f"{path} is not the source of an imported run")
        yield run, source


def _write(store: Store, run: Imported, tell: Tell) -> bool:
    """Write what is not there; files that cannot be read are moved aside."""
    directory, missing = store.run(run.run), []
    for name, content in run.files().items():
        if (directory / name).suffix == ".json" and name != SOURCE:
            store.set_aside(run.run, name)
        if not (directory / name).is_file():
            missing.append((name, content))
    for name, content in missing:
        write_atomically(directory / name, content)
    return bool(missing)
