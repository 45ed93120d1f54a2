"""What a search of hyperparameters looks for, where, and as which runs. Light to import: no torch,
no Optuna.

A study with a ``tune:`` key is a search: its lists, and its ranges ``{low, high}`` with ``log`` or
``step``, are what may be chosen; its runs are trials::

    name: mine
    constants: {data: "folder:photos", epochs: 50}
    heads: [default]
    seeds: [0]                   # one: of every trial; the confirming runs take those after it
    tune: {trials: 30}           # and the other fields of Search
    grid:                        # or by method or head; a method without ranges gets its SPACES
      base_lr: {low: 0.01, high: 1.0, log: true}
      temperature: [0.1, 0.2, 0.5]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from radial.checks import check_choice, check_number, check_size
from radial.data.augmentations import recipe
from radial.study.plan import KINDS, LISTS, MACHINE, Planned, Study, from_values, typed
from radial.training.config import RunConfig, from_dict, preset, slug

if TYPE_CHECKING:
    import optuna

Params = dict[str, Any]  # as Optuna names them
TRIAL, BEST, DEFAULT = "trial", "best", "default"  # kinds of runs

_COMMON = {
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    "color_strength": {"low": 0.25, "high": 1.5},
    "min_scale": {"low": 0.08, "high": 0.6},
}
_SGD = {"base_lr": {"low": 0.01, "high": 2.0, "log": True}, **_COMMON}
_ADAMW = {"base_lr": {"low": 1e-4, "high": 2e-2, "log": True}, **_COMMON}
_TEMPERATURE = {"temperature": {"low": 0.05, "high": 1.0, "log": True}}
_MOMENTUM = {"momentum": {"low": 0.9, "high": 0.999}}
# Each holds the method's defaults, but for what the recipe of views settles.
SPACES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "simclr": _SGD | _TEMPERATURE,
        "moco": _SGD | _TEMPERATURE | _MOMENTUM,
        "byol": _SGD | _MOMENTUM,
        "swav": _ADAMW | _TEMPERATURE,
        "simsiam": _SGD,
        "barlow_twins": _ADAMW | {"redundancy": {"low": 5e-4, "high": 5e-2, "log": True}},
        "vicreg": _ADAMW | {"covariance": {"low": 0.1, "high": 10.0, "log": True}},
        "dino": _SGD | _TEMPERATURE,
        "nnclr": _SGD | _TEMPERATURE,
        "supervised": _SGD,
        "supcon": _SGD | _TEMPERATURE,
    }
)


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a space is searched.

    Args:
        trials: how many settings are tried; the first are the defaults, at full length.
        score: what is maximised, or minimised where lower is better; views are drawn alike for
            all trials.
        labels: choose by the accuracy on the labelled validation images of a logistic regression
            fitted to the training images instead; a share, such as 0.01: to that part of each
            class.
        part: whose images the score is of: train, val or test.
        images: how many of them, at most.
        sampler: tpe or random; Optuna's.
        pruner: halving (successive halving) or none.
        first: epochs of a trial before it may be pruned; by default a ninth of all.
        reduction: of as many trials one goes on at each halving.
        confirm: further seeds for the best and for the default settings; 0 for none.
        seed: of the sampler.
    """

    trials: int = 30
    score: str = "view_retrieval@backbone"
    labels: bool | float = False
    part: str = "val"
    images: int = 1024
    sampler: str = "tpe"
    pruner: str = "halving"
    first: int | None = None
    reduction: int = 3
    confirm: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        from radial.metrics.registry import SCORES, parse

        for name, least in _LEAST.items():
            if getattr(self, name) is not None:
                check_size(f"tune: {name}", getattr(self, name), minimum=least)
        if not isinstance(self.labels, bool):
            check_number("tune: labels, a share such as 0.01,", self.labels, 1e-6, 1.0)
            if self.labels == 1:
                object.__setattr__(self, "labels", True)
        check_choice("part", self.part, ("train", "val", "test"))
        check_choice("sampler", self.sampler, ("tpe", "random"))
        check_choice("pruner", self.pruner, ("halving", "none"))
        name, layer = parse(self.score)
        if SCORES[name].better not in ("higher", "lower"):
            raise ValueError(f"tune: {name} is best near 1, neither high nor low: choose another")
        object.__setattr__(self, "score", f"{name}@{layer}")

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        from radial.metrics.registry import SCORES, parse

        lower = not self.labels and SCORES[parse(self.score)[0]].better == "lower"
        return "minimize" if lower else "maximize"

    @property
    def objective(self) -> str:
        if not self.labels:
            return self.score
        share = f", by {100 * self.labels:g} % of the training labels" if self.labels < 1 else ""
        return f"accuracy on validation images{share}"

    def rungs(self, epochs: int) -> list[int]:
        """The epochs after which a trial may be pruned.

        >>> Search().rungs(20), Search(first=5).rungs(100), Search(pruner="none").rungs(20)
        ([2, 6, 18], [5, 15, 45], [])
        """
        found, epoch = [], self.first or max(1, epochs // 9)
        while epoch < epochs and self.pruner == "halving":
            found.append(epoch)
            epoch *= self.reduction
        return found

    def seed_of(self, number: int) -> int:
        """Of the sampler that proposes one trial: the same whoever asks, and when."""
        digest = hashlib.sha256(f"{self.seed} {number}".encode()).digest()
        return int.from_bytes(digest[:4], "big")


_LEAST = {
    "trials": 1, "images": 16, "first": 1, "reduction": 2, "confirm": 0, "seed": 0,
}  # fmt: skip


def search_of(study: Study) -> Search:
    """How a study searches; a ValueError for what it cannot."""
    given, known = dict(study.tune or {}), [f.name for f in fields(Search)]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"tune: unknown {', '.join(unknown)}; known: {', '.join(known)}")
    return Search(**given)


def unlike(before: Study, after: Study) -> list[str]:
    """The settings in which two searches differ, so that they share no trial.

    How many trials there are and how many seeds confirm the best may change, and so may what the
    machine alone decides. Of studies that are no searches: none.
    """
    if before.tune is None or after.tune is None:
        return []
    one, other = _decisive(before), _decisive(after)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _decisive(study: Study) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"tune: {name}": value
        for name, value in asdict(search_of(study)).items()
        if name not in ("trials", "confirm")
    }
    found |= {"methods": list(study.methods), "heads": list(study.heads), "seeds": study.seeds}
    for method in study.methods:
        for head in study.heads:
            for name, value in study.settings(method, head).items():
                if name not in MACHINE:
                    kept = slug(value) if name == "data" else value
                    found.setdefault(name, {})[f"{method} {head}"] = kept
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def as_search(study: Study, **changes: Any) -> Study:
    """A study as a search: methods without any range get the space of their own.

    Args:
        study: as it was read.
        changes: fields of :class:`Search` that win over those of the study; None changes nothing.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    values = study.to_dict() | {"tune": dict(study.tune or {}) | given}
    values["score"] = study.score or False  # a trial has one already
    shared = [study.constants, study.grid, *study.heads.values()]
    for method, group in values["methods"].items():
        if not any(ranged(name, v) for part in (group, *shared) for name, v in part.items()):
            fixed = {name for part in shared for name in part}
            space = {name: value for name, value in SPACES[method].items() if name not in fixed}
            values["methods"][method] = {**space, **group}
    return from_values(values)


def preset_search(method: str, changes: Mapping[str, Any]) -> Study:
    """The space of one method, its default head, and what is changed."""
    check_choice("preset", method, SPACES)
    values = {"name": f"tune-{method}", "methods": [method], "heads": ["default"], "tune": {}}
    return from_values(values, changes)


def ranged(name: str, value: Any) -> bool:
    """Whether something is left to choose."""
    return isinstance(value, Mapping) or (isinstance(value, list) and name not in LISTS)


def slots(study: Study) -> tuple[Planned, ...]:
    """The runs of a search: ``trial-000`` (the defaults), …, then ``best-SEED`` and
    ``default-SEED``. Their config is that of the defaults until they are asked for.
    """
    search, first = search_of(study), study.seeds[0]
    if len(study.seeds) > 1:
        raise ValueError("a search has one seed; tune: confirm says how many confirm its best")
    names = [(f"{TRIAL}-{number:03d}", first) for number in range(search.trials)]
    for seed in range(first + 1, first + 1 + search.confirm):
        names += [(f"{BEST}-{seed}", seed), (f"{DEFAULT}-{seed}", seed)]
    for method in study.methods:
        for head in study.heads:
            _check_space(study, method, head)
    return tuple(
        Planned(id=name, index=index, config=configured(study, {}, seed))
        for index, (name, seed) in enumerate(names)
    )


def _check_space(study: Study, method: str, head: str) -> None:
    """Every range is one, and its ends make a run."""
    low: Params = {}
    high: Params = {}
    settings = study.settings(method, head)
    for name, value in settings.items():
        if isinstance(value, Mapping):
            if not {"low", "high"} <= set(value) <= {"low", "high", "log", "step"}:
                raise ValueError(f"{name}: a range is {{low, high}} with log or step, not {value}")
            ends = [typed(name, value[end]) for end in ("low", "high")]
            for one in ends:
                check_number(f"{name}: an end of the range", one, -1e12, 1e12)
            if not ends[0] < ends[1] or (value.get("log") and ends[0] <= 0):
                raise ValueError(f"{name}: no range from {ends[0]} to {ends[1]}")
            low[name], high[name] = ends
        elif ranged(name, value):
            if not value:
                raise ValueError(f"the range of {name} is empty")
            low[name], high[name] = typed(name, value[0]), typed(name, value[-1])
    if not low and len(study.methods) * len(study.heads) == 1:
        raise ValueError("nothing to search: no setting has a range")
    fixed = {name: typed(name, v) for name, v in settings.items() if name not in low}
    for end in (low, high):
        run = from_dict(fixed | end | {"method": method, "head": head})
        if run.devices * run.num_nodes > 1:
            raise ValueError("a trial is trained by one process: devices and num_nodes must be 1")
        if run.patience is not None:
            raise ValueError("patience is for single runs: a search prunes its trials")


def choices(study: Study, method: str, head: str) -> Iterator[tuple[str, str, Any]]:
    """What may be chosen for a method and head: Optuna's name, the setting, its range.

    Where there are several methods or heads, what belongs to one of them is named by it.
    """
    for name, value in study.settings(method, head).items():
        if ranged(name, value):
            owner = ""
            if len(study.methods) > 1 and name in study.methods[method]:
                owner = f"{method}."
            elif len(study.heads) > 1 and name in study.heads[head]:
                owner = f"{head}."
            yield f"{owner}{name}", name, value


def suggest(trial: optuna.Trial, study: Study) -> None:
    """Have Optuna choose every setting that a trial has; what it chose is ``trial.params``."""
    places = {}
    for name, options in (("method", study.methods), ("head", study.heads)):
        known = list(options)
        places[name] = trial.suggest_categorical(name, known) if len(known) > 1 else known[0]
    for key, name, value in choices(study, places["method"], places["head"]):
        if isinstance(value, list):
            trial.suggest_categorical(key, [typed(name, option) for option in value])
            continue
        low, high = (typed(name, value[end]) for end in ("low", "high"))
        log, whole = bool(value.get("log", False)), "int" in str(KINDS[name])
        if whole:
            trial.suggest_int(key, low, high, log=log, step=value.get("step", 1))
        else:
            trial.suggest_float(key, low, high, log=log, step=value.get("step"))


def configured(study: Study, params: Params, seed: int) -> RunConfig:
    """The run that parameters make; what they do not name is as it is by default."""
    method = params.get("method", next(iter(study.methods)))
    head = params.get("head", next(iter(study.heads)))
    chosen = {}
    for key, name, _ in choices(study, method, head):
        usual = {} if study.preset is None else preset(study.preset, method)
        if key in params:
            chosen[name] = params[key]
        elif name in usual:
            chosen[name] = usual[name]
    fixed = {
        name: typed(name, value)
        for name, value in study.settings(method, head).items()
        if not ranged(name, value)
    }
    return from_dict(fixed | chosen | {"method": method, "head": head, "seed": seed})


def default_params(study: Study, config: RunConfig) -> Params | None:
    """The defaults as parameters, so that the sampler can learn from them too.

    Args:
        study: the search.
        config: of a run with the defaults, as its config.yaml has it: what fits the data is chosen.

    Returns:
        None where one of them is not known, or not in the space.
    """
    places = {"method": (config.method, study.methods), "head": (config.head, study.heads)}
    params: Params = {name: v for name, (v, known) in places.items() if len(known) > 1}
    for key, name, value in choices(study, config.method, config.head):
        usual = getattr(config, name)
        if name == "min_scale" and usual is None:
            usual = recipe(config.method, config.image_size or 32)[0].scale[0]
        if isinstance(value, list):
            inside = usual in [typed(name, option) for option in value]
        else:
            low, high = (typed(name, value[end]) for end in ("low", "high"))
            inside = usual is not None and low <= usual <= high and "step" not in value
        if not inside:
            return None
        params[key] = usual
    return params
