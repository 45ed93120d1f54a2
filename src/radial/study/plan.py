"""From a YAML file to the runs of a study. Light to import: no torch.

    name: heads
    preset: paper                # optional: the published hyperparameters of each method
    constants: {data: digits, epochs: 20}
    methods:                     # a list of names, or settings and ranges for each
      simclr: {temperature: [0.2, 0.5]}
      byol: {}
    heads: [default, rbfn]       # likewise
    grid: {base_lr: [0.03, 0.12]}
    exclude: [{method: byol, base_lr: 0.03}]
    seeds: [0, 1, 2]
    sample: {runs: 20, seed: 0}  # optional: so many configurations a method, drawn at random
    evaluate: {protocol: [exact]}
    score: {images: 2048}        # evaluate and score may be false: then that step is left out
    checkpoints: false           # true: both also for what save_every keeps on the way;
                                 # [1, 3, 10]: of these epochs only
    keep_weights: true           # false: checkpoints are removed once a run is complete
    tune: {trials: 30}           # makes it a search, see search.py: ranges are then chosen from

A list is a range; what stands further down in ``constants, grid, heads, methods`` wins.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, get_type_hints

from radial.checks import as_kind, check_choice, check_size
from radial.documents import parse_yaml, read_yaml
from radial.scoring.settings import EvalSettings, Settings
from radial.training.config import DEFAULTS, HEADS, RunConfig, from_dict, preset, slug

VERSION = 1  # of study.yaml
LIMIT = 1000  # runs: more only when asked for twice
MOST_COMBINATIONS = 100_000
PRESETS = Path(__file__).with_name("presets")
KINDS = {f.name: get_type_hints(RunConfig)[f.name] for f in fields(RunConfig)}
LISTS = ("loggers", "monitor")
# What does not change a run's result is not part of its identity.
MACHINE = (
    "out", "threads", "compile", "workers", "accelerator", "data_root", "loggers", "save_every",
    "knn", "monitor", "monitor_every", "monitor_unit", "max_bad_images", "keep",
)  # fmt: skip
# Settings that came after the first studies count only where they are set: known runs keep their
# ids, and nothing is trained again because there is something new to choose.
LATER = (
    "teacher_temperature", "redundancy", "invariance", "variance", "covariance", "patience",
)  # fmt: skip
GIVEN = (  # by the run
    "data", "image_size", "split", "data_root", "max_bad_images", "backbone", "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run of a study; ``id`` ends in a hash of all that its result depends on."""

    id: str
    index: int
    config: RunConfig


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study as written down; :meth:`runs` has them all, in order."""

    name: str
    preset: str | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Any] = field(default_factory=lambda: {"simclr": {}})
    heads: Mapping[str, Any] = field(default_factory=lambda: {"default": {}, "rbfn": {}})
    exclude: Sequence[Mapping[str, Any]] = ()
    seeds: Sequence[int] = (0,)
    sample: Mapping[str, int] | None = None
    evaluate: Mapping[str, Any] | None = field(default_factory=dict)
    score: Mapping[str, Any] | None = field(default_factory=dict)
    checkpoints: bool | Sequence[int] = False
    keep_weights: bool = True
    tune: Mapping[str, Any] | None = None  # a search: see search.py
    version: int = VERSION

    def __post_init__(self) -> None:
        for name, value in self.constants.items():
            if isinstance(value, list) and name not in LISTS:
                raise ValueError(f"constants: {name} is a list; ranges belong under grid")
        for method in self.methods:
            check_choice("method", method, DEFAULTS)
        for head in self.heads:
            check_choice("head", head, HEADS)
        if not re.fullmatch(r"\w[\w .-]*", self.name):
            raise ValueError(
                f"name must be letters, digits, blanks, '.', '_', '-', not {self.name!r}"
            )
        groups = [self.constants, self.grid, *self.heads.values(), *self.methods.values()]
        for name in ("method", "head", "seed"):
            if any(name in group for group in groups):
                raise ValueError(f"{name} is not a setting of a study: use {name}s")
        for group in [*groups, *self.exclude]:
            if not isinstance(group, Mapping):
                raise ValueError(f"settings must be names and values, not {group!r}")
            _check_keys(group)
        for seed in self.seeds:
            check_size("seed", seed, minimum=0)
        if not self.seeds or not self.methods or not self.heads:
            raise ValueError("a study needs at least one seed, method and head")
        self.scoring("digits"), self.evaluation("digits")  # their settings are checked now
        if self.checkpoints and not any("save_every" in group for group in groups):
            raise ValueError("checkpoints needs save_every, the epochs between them")
        for epoch in () if isinstance(self.checkpoints, bool) else self.checkpoints:
            check_size("checkpoints: epoch", epoch)

    def runs(self) -> tuple[Planned, ...]:
        """Every combination that is not excluded, each once; of a search, its trials."""
        if self.tune is not None:
            from radial.study.search import slots

            return slots(self)
        if (size := self.combinations()) > MOST_COMBINATIONS:
            raise ValueError(f"the grid has {size:,} combinations: too many to look at")
        found: dict[str, RunConfig] = {}
        for method in self.methods:
            chosen = list(dict.fromkeys(self._configs(method)))
            if self.sample is not None:
                salt = str(self.sample["seed"])
                chosen.sort(
                    key=lambda config: hashlib.sha256((salt + identity(config)).encode()).digest()
                )
                chosen = chosen[: self.sample["runs"]]
            for config in chosen:
                for seed in self.seeds:
                    run = replace(config, seed=seed)
                    if any(_matches(run.to_dict(), rule) for rule in self.exclude):
                        continue
                    known = found.setdefault(identity(run), run)
                    if known.data != run.data:
                        raise ValueError(
                            f"{known.data} and {run.data} cannot be told apart: rename a folder"
                        )
        if not found:
            raise ValueError("no run is left: everything is excluded")
        return tuple(
            Planned(id=key, index=i, config=config) for i, (key, config) in enumerate(found.items())
        )

    def combinations(self) -> int:
        """How many there are before exclusions."""
        sizes = [
            prod(len(_range(name, value)) for name, value in self.settings(method, head).items())
            for method in self.methods
            for head in self.heads
        ]
        return sum(sizes) * len(self.seeds)

    def settings(self, method: str, head: str) -> dict[str, Any]:
        """All that is said of a method with a head: values and ranges."""
        published = {} if self.preset is None else preset(self.preset, method)
        groups = (published, self.constants, self.grid, self.heads[head], self.methods[method])
        settings = {name: value for group in groups for name, value in group.items()}
        if not settings.get("data"):
            raise ValueError("which data? put it under constants, or give --set data=NAME")
        return settings

    def _configs(self, method: str) -> Iterator[RunConfig]:
        for head in self.heads:
            settings = self.settings(method, head)
            ranges = [_range(name, value) for name, value in settings.items()]
            for values in product(*ranges):
                chosen = dict(zip(settings, values)) | {"method": method, "head": head}
                if any(_matches(chosen, rule) for rule in self.exclude if "seed" not in rule):
                    continue  # before it is checked: such a combination may make no sense
                try:
                    yield from_dict(chosen)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{method} with {head} head: {error}") from error

    def evaluation(self, data: str, **given: Any) -> EvalSettings | None:
        if self.evaluate is None:
            return None
        options = _options("evaluate", self.evaluate, EvalSettings)
        return EvalSettings(**{"data": data, "cache": False, **options, **given})

    def scoring(self, data: str, **given: Any) -> Settings | None:
        if self.score is None:
            return None
        options = _options("score", self.score, Settings)
        return Settings(**{"data": data, "part": "test", "cache": False, **options, **given})

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the study's directory."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("evaluate", "score"):
            values[name] = False if values[name] is None else values[name]
        if self.tune is None:
            del values["tune"]
        return json.loads(json.dumps(values))  # type: ignore[no-any-return]


def identity(config: RunConfig) -> str:
    """``METHOD-HEAD-SEED-HASH``: ten hex digits over all the settings that decide the result.

    What a method's defaults settle counts as if it were written out; what is chosen to fit the
    data follows from the data. Of a dataset's path only its last part counts, so that a study can
    move.

    >>> identity(RunConfig(epochs=3)) == identity(RunConfig(epochs=3, threads=1))
    True
    """
    config = config.with_defaults(DEFAULTS[config.method])
    watched = ("monitor", "monitor_every", "monitor_unit") if config.patience else ()
    values = {
        name: value
        for name, value in config.to_dict().items()
        if (name not in MACHINE or name in watched) and not (name in LATER and value is None)
    }
    text = json.dumps(values | {"data": slug(config.data)}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{config.method}-{config.head}-{config.seed}-{digest}"


def read_study(source: str | Path, changes: Sequence[str] = ()) -> Study:
    """A study from a YAML file, a study's directory or the name of a preset.

    ``changes`` are texts such as ``epochs=5`` or ``seeds=[0, 1]``: they win over all else.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / "study.yaml"
    if not path.is_file() and (PRESETS / f"{source}.yaml").is_file():
        path = PRESETS / f"{source}.yaml"
    if not path.is_file():
        raise ValueError(
            f"no study {str(source)!r}: neither a YAML file, nor a study's directory, nor one of "
            f"the presets {', '.join(presets())}"
        )
    return from_values({"name": path.stem, **read_yaml(path)}, given_changes(changes))


def given_changes(changes: Sequence[str]) -> dict[str, Any]:
    """Texts such as ``epochs=5`` by name, their values as YAML reads them."""
    given = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, not {change!r}")
        try:
            given[name] = parse_yaml(text)
        except ValueError as error:
            raise ValueError(f"--set {change}: the value is not YAML") from error
    return given


def from_values(values: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Study:
    version = values.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"the study was written by a newer radial (format {version}; this one reads {VERSION})"
        )
    known = [f.name for f in fields(Study)]
    if unknown := sorted(map(str, set(values) - set(known))):
        raise ValueError(f"unknown keys {', '.join(unknown)}; known: {', '.join(known)}")
    values = _changed({k: v for k, v in values.items() if v is not None}, changes or {})
    for name in ("methods", "heads"):
        if isinstance(values.get(name), list):
            values[name] = {str(key): {} for key in values[name]}
        elif name in values and isinstance(values[name], dict):
            values[name] = {key: value or {} for key, value in values[name].items()}
    for name in ("evaluate", "score"):
        if isinstance(values.get(name), bool):
            values[name] = {} if values[name] else None
    for name, kind in _SHAPES.items():
        if values.get(name) is not None and not isinstance(values[name], kind):
            kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise ValueError(f"{name} must be a {kinds}, not {values[name]!r}")
    for name in ("methods", "heads"):
        for key, value in values.get(name, {}).items():
            if not isinstance(value, dict):
                raise ValueError(f"{name}: {key} must have settings, not {value!r}")
    if (drawn := values.get("sample")) is not None:
        values["sample"] = {"seed": 0, **drawn}
        if set(values["sample"]) != {"runs", "seed"}:
            raise ValueError(f"sample takes runs and seed, not {', '.join(drawn)}")
        check_size("sample: runs", values["sample"]["runs"])
        check_size("sample: seed", values["sample"]["seed"], minimum=0)
    return Study(**values)


_SHAPES: dict[str, type | tuple[type, ...]] = {
    "name": str, "preset": str, "constants": dict, "grid": dict, "methods": dict, "heads": dict,
    "exclude": list, "seeds": list, "sample": dict, "evaluate": dict, "score": dict,
    "checkpoints": (bool, list), "keep_weights": bool, "tune": dict,
}  # fmt: skip


def _changed(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``changes`` of keys of a study replace them; those of settings replace every mention."""
    values = dict(values)
    for name, value in changes.items():
        if name in {f.name for f in fields(Study)} - {"version"}:
            values[name] = value
            continue
        _check_keys([name])
        for place in ("constants", "grid"):
            values[place] = {k: v for k, v in (values.get(place) or {}).items() if k != name}
        for place in ("methods", "heads"):
            if isinstance(values.get(place), dict):
                values[place] = {
                    key: {k: v for k, v in (group or {}).items() if k != name}
                    for key, group in values[place].items()
                }
        ranged = isinstance(value, list) and name not in LISTS
        values["grid" if ranged else "constants"][name] = value
    return values


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def _check_keys(names: Mapping[str, Any] | Sequence[str]) -> None:
    if not isinstance(names, Mapping | list):
        raise ValueError(f"settings must be names and values, not {names!r}")
    if unknown := sorted(set(map(str, names)) - set(KINDS)):
        raise ValueError(
            f"unknown settings {', '.join(unknown)}; known: {', '.join(sorted(KINDS))}"
        )


def _range(name: str, value: Any) -> list[Any]:
    listed = isinstance(value, list) and (
        name not in LISTS or any(isinstance(v, list) for v in value)
    )
    values = value if listed else [value]
    if not values:
        raise ValueError(f"the range of {name} is empty")
    return [typed(name, item) for item in values]


def typed(name: str, value: Any) -> Any:
    """YAML reads 1e-3 as text and 32 as a number."""
    kind = str(KINDS[name])
    if name == "data" and not isinstance(value, str):
        raise ValueError(f"data must be a name, not {value!r}")
    if isinstance(value, str) and "float" in kind:
        try:
            return float(value)
        except ValueError as error:
            raise ValueError(f"{name} must be a number, not {value!r}") from error
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if "float" in kind else str(value) if name == "precision" else value
    return value


def _matches(settings: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
    def holds(name: str, wanted: Any) -> bool:
        options = wanted if isinstance(wanted, list) else [wanted]
        usual = {f.name: f.default for f in fields(RunConfig)}[name]
        return settings.get(name, usual) in [typed(name, option) for option in options]

    return all(holds(name, wanted) for name, wanted in rule.items())


def _options(step: str, given: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    known = {f.name for f in fields(kind)} - set(GIVEN)
    if unknown := sorted(set(given) - known):
        raise ValueError(f"{step}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    kinds = get_type_hints(kind)
    return {name: as_kind(f"{step}: {name}", value, kinds[name]) for name, value in given.items()}
