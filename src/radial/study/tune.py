"""`radial tune`: hyperparameters by a score that needs no labels; Optuna samples and prunes.

The directory is the truth here, too. trials/ID.json holds what a trial was given and how it fared;
Optuna's study is made anew from these files whenever a trial is to be proposed or judged, and the
sampler's seed is the trial's own. So nothing is lost with a process that is killed, and the search
of a single worker is the same with or without interruptions. A trial is trained from one rung of
the successive halving to the next; each time its checkpoint is scored.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from radial.checks import needs
from radial.files import write_atomically, write_json
from radial.study.claims import Claim
from radial.study.plan import Planned, Study
from radial.study.search import (
    BEST,
    TRIAL,
    Params,
    Search,
    configured,
    default_params,
    search_of,
    suggest,
)
from radial.study.store import Store, read_json
from radial.study.worker import STEPS, Job, Worker, train_until
from radial.training.rundir import EVALUATION, RESULT, read_config, to_json
from radial.verdicts import BROKEN, OK

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from rich.console import Console

RUNNING, COMPLETE, PRUNED = "running", "complete", "pruned"
WAIT = 1.0  # seconds between two looks whether the last trials have ended
JOURNAL = "optuna.log"


@dataclass(kw_only=True)
class Trial:
    """What a run of a search was given, and how it fared."""

    id: str
    params: Params | None  # None: the defaults, of which the sampler cannot learn
    of: str = ""  # the trial that a run confirms
    values: dict[int, float | None] = field(default_factory=dict)  # by epoch; None: not finite
    state: str = RUNNING
    seconds: float = 0.0  # of scoring

    @property
    def value(self) -> float | None:
        """The score at full length."""
        return self.values[max(self.values)] if self.state == COMPLETE else None

    @property
    def number(self) -> int:
        return int(self.id.rpartition("-")[2])


def kind_of(run: str) -> str:
    return run.partition("-")[0]


def read_trial(store: Store, run: str) -> Trial | None:
    values = read_json(store.path / "trials" / f"{run}.json")
    if not values:
        return None
    scores = {int(epoch): value for epoch, value in values.pop("values").items()}
    return Trial(**values, values=scores)


def write_trial(store: Store, trial: Trial) -> None:
    write_json(store.path / "trials" / f"{trial.id}.json", asdict(trial))


def history(store: Store, study: Study) -> list[Trial]:
    """Every trial that was begun, in the order of their numbers."""
    found = (read_trial(store, run.id) for run in study.runs() if kind_of(run.id) == TRIAL)
    return [trial for trial in found if trial is not None]


def replay(study: Study, trials: Iterable[Trial]) -> optuna.Study:
    """Optuna's study of these trials, the last of them asked about or told like all others."""
    needs("tune", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    search = search_of(study)
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if rungs := search.rungs(configured(study, {}, 0).epochs):
        pruner = optuna.pruners.SuccessiveHalvingPruner(rungs[0], reduction_factor=search.reduction)
    found = optuna.create_study(
        direction=search.direction, sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner
    )
    for trial in trials:
        if trial.params is None:
            continue
        found.enqueue_trial(trial.params)
        told = found.ask()
        suggest(told, study)
        for epoch, value in sorted(trial.values.items()):
            told.report(math.nan if value is None else value, epoch)
            pruned = told.should_prune()  # for the current one; notes the rung for the others
        if trial.state == RUNNING and trial.values:
            told.set_user_attr("pruned", pruned)
        if trial.state == COMPLETE:
            found.tell(told, trial.value)
        elif trial.state == PRUNED:
            found.tell(told, state=optuna.trial.TrialState.PRUNED)
    return found


def propose(study: Study, number: int, others: Iterable[Trial]) -> Params:
    """The parameters of a trial, from its number and what is known of the others."""
    found, search = replay(study, others), search_of(study)
    from optuna import samplers

    seed = search.seed_of(number)
    if search.sampler == "random":
        found.sampler = samplers.RandomSampler(seed=seed)
    else:
        startup = min(10, max(3, search.trials // 3))  # Optuna's ten are most of a short search
        found.sampler = samplers.TPESampler(seed=seed, n_startup_trials=startup)
    trial = found.ask()
    suggest(trial, study)
    return dict(trial.params)


def falls_behind(study: Study, trial: Trial, others: Iterable[Trial]) -> bool:
    """Whether successive halving ends a trial here."""
    if trial.params is None:
        return False
    found = replay(study, [*others, trial])
    return bool(found.trials[-1].user_attrs["pruned"])


def asked(store: Store, study: Study, run: Planned) -> Trial:
    """A run's parameters: those it was given before, or new ones, which are written down."""
    if (known := read_trial(store, run.id)) is not None:
        return known
    kind, number = kind_of(run.id), int(run.id.rpartition("-")[2])
    trial = Trial(id=run.id, params=None)  # the defaults
    if kind == BEST:
        chosen = best(store, study)
        trial = Trial(id=run.id, params=chosen.params, of=chosen.id)
    elif kind == TRIAL and number:
        trial = Trial(id=run.id, params=propose(study, number, history(store, study)))
    write_trial(store, trial)
    return trial


def best(store: Store, study: Study) -> Trial:
    """The complete trial with the best score; one that collapsed only where all did.

    Raises:
        ValueError: if no trial is complete.
    """
    search = search_of(study)
    sign = 1 if search.direction == "maximize" else -1
    found = [trial for trial in history(store, study) if trial.value is not None]
    if not found:
        raise ValueError(f"{store.path} has no complete trial yet")
    verdicts = {trial.id: (store.read(trial.id, RESULT) or {}).get("verdict") for trial in found}
    good = [trial for trial in found if verdicts[trial.id] == OK] or found
    return max(good, key=lambda trial: (sign * (trial.value or 0.0), -trial.number))


def train_trial(job: Job) -> None:
    """From rung to rung, scored at each, until it falls behind or is done."""
    search, trial = search_of(job.study), read_trial(job.store, job.run.id)
    assert trial is not None
    epochs, result = job.config.epochs, None
    stops = search.rungs(epochs) if kind_of(trial.id) == TRIAL else []
    if trial.state == RUNNING:
        for epoch in (*stops, epochs):
            if epoch not in trial.values:
                result = train_until(job, epoch)
                assert result is not None
                if trial.params is None:  # now config.yaml says what they are
                    trial.params = default_params(job.study, read_config(job.directory))
                began = time.perf_counter()
                trial.values[epoch] = None if result.stopped else measure(job, search)
                trial.seconds += round(time.perf_counter() - began, 3)
                write_trial(job.store, trial)
            out = trial.values[epoch] is None
            if not out and epoch < epochs and trial.number:  # the defaults are trained to the end
                others = (one for one in history(job.store, job.study) if one.id != trial.id)
                out = falls_behind(job.study, trial, others)
            if out:
                break
        trial.state = PRUNED if out else COMPLETE
        write_trial(job.store, trial)
    result = result or train_until(job, max(trial.values))  # killed here: nothing left to train
    assert result is not None
    write_atomically(job.directory / RESULT, to_json(result))


def measure(job: Job, search: Search) -> float | None:
    """The score of a trial's last checkpoint; None where features are not finite."""
    from radial.scoring.score import score
    from radial.scoring.settings import Settings

    if search.labels:
        return _accuracy(job, float(search.labels))
    settings = Settings(
        data=job.config.data,
        part=search.part,  # type: ignore[arg-type]
        images=search.images,
        view_images=search.images,
        scores=(search.score,),
        repeats=0,
        device=job.config.accelerator,
        cache=False,
    )
    card = score(job.directory, job.data, settings=settings)[0]
    found = {one.key: one.value for one in card.scores}
    if search.score not in found and card.status != BROKEN:
        raise ValueError(f"{job.run.id} has no {search.score}: {card.status} {card.reason}".strip())
    value = found.get(search.score, math.nan)
    return float(value) if math.isfinite(value) else None


def _accuracy(job: Job, share: float) -> float | None:
    """Of a logistic regression fitted to a share of the training labels, on validation images."""
    from radial.devices import device_of
    from radial.evaluation.features import NotFinite, extract
    from radial.evaluation.probe import few_label_probe
    from radial.scoring.evaluate import few_labels
    from radial.scoring.targets import build, find

    data = job.data
    data.require_labels()
    network = build(find(str(job.directory)), image_size=data.image_size)
    backbone = network.backbone.to(device_of(job.config.accelerator))
    parts: list[Any] = []
    try:
        for images in (data.train, data.val):
            parts += [extract(backbone, images, data), images.labels]
    except NotFinite:
        return None
    parts[1] = few_labels(parts[1], share, seed=0)
    return float(few_label_probe(*parts).accuracy)


@dataclass(eq=False)
class TrialWorker(Worker):
    """Works on the trials of a search; what confirms the best begins when all have ended."""

    todo: Mapping[str, Callable[[Job], None]] = field(
        default_factory=lambda: {**STEPS, RESULT: train_trial}
    )

    def job(self, run: Planned, console: Console) -> Job:
        trial = asked(self.store, self.study, run)
        config = configured(self.study, trial.params or {}, run.config.seed)
        return super().job(replace(run, config=config), console)

    def ready(self, run: Planned) -> bool:
        return kind_of(run.id) == TRIAL or not any(
            self.open(one) for one in self.plan if kind_of(one.id) == TRIAL
        )

    def open(self, run: Planned) -> bool:
        """Whether a run is neither complete nor failed in this session."""
        if run.id in self._done or not self.store.missing(run.id, self.steps):
            return False
        return self.store.failure(run.id).get("session") != self.session

    def wait(self) -> tuple[Planned, Claim] | None:
        while any(self.open(run) and not self.ready(run) for run in self.plan):
            time.sleep(WAIT)
            if found := self.claim():
                return found
        return self.claim()


def table(store: Store, study: Study) -> pd.DataFrame:
    """A row a trial, and a row a confirming run: how it ended, what it cost, what it scored.

    ``epochs`` and ``seconds`` are what was trained, ``value`` the score at full length,
    ``first_value`` that at the first rung, ``val_accuracy`` and ``accuracy`` what labels say of
    validation and test images where the study evaluates. Parameters are the last columns.
    """
    import pandas as pd

    rows = []
    for run in study.runs():
        trial, result = read_trial(store, run.id), store.read(run.id, RESULT)
        if trial is None or result is None:
            continue
        row: dict[str, Any] = {
            "run": run.id,
            "kind": kind_of(run.id),
            "of": trial.of,
            "state": trial.state,
        }
        row |= {"seed": run.config.seed, "value": trial.value}
        first = trial.values[min(trial.values)] if row["kind"] == TRIAL else None
        row |= {"first_value": first, "verdict": result["verdict"]}
        row |= {"epochs": result["epochs"], "seconds": result["seconds"] + trial.seconds}
        probe = (store.read(run.id, EVALUATION) or {}).get("probes", {}).get("exact", {})
        row["val_accuracy"] = max((one["accuracy"] for one in probe.get("path", ())), default=None)
        row |= {"accuracy": probe.get("accuracy")}
        rows.append(row | (trial.params or {}))
    if not rows:
        raise ValueError(f"{store.path} has no finished trial yet")
    found = pd.DataFrame(rows)
    numbers = ["value", "first_value", "val_accuracy", "accuracy"]
    return found.assign(**found[numbers].astype(float))


def finish(store: Store) -> None:
    """Write best/, a run's directory, and optuna.log, which Optuna's tools read; nothing as long
    as no trial is complete.
    """
    study = store.study()
    if not any(trial.value is not None for trial in history(store, study)):
        return
    place, new = store.path / "best", store.path / ".best"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(store.run(best(store, study).id), new)
    shutil.rmtree(place, ignore_errors=True)
    os.replace(new, place)
    _write_journal(store, study)


def _write_journal(store: Store, study: Study) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    found, new = replay(study, history(store, study)), store.path / f".{JOURNAL}"
    new.unlink(missing_ok=True)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(new)))
    written = optuna.create_study(
        storage=storage, study_name=study.name, direction=search_of(study).direction
    )
    written.add_trials(found.get_trials(deepcopy=False))
    os.replace(new, store.path / JOURNAL)
