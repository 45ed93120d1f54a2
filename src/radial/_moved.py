"""Modules of 0.1 under their old names: they work in 0.2, with a warning, and go in 0.3."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NOW = {  # modules below radial: what they were called
    "checkpoints": "training.checkpoint",
    "checks": "data.errors",
    "data.augmentations": "data.recipes",
    "data.images": "data.decoding data.splits",
    "data.sources": "data.downloads data.folders",
    "data.statistics": "data.stats",
    "data.survey": "data.reading",
    "data.views": "data.pixels",
    "devices": "training.devices",
    "evaluation.classification": "evaluation.knn",
    "evaluation.fit_head": "evaluation.heads",
    "metrics.separation": "metrics.assignments metrics.kernels",
    "open_images": "data.open_images",
    "rbf.calibration": "calibration",
    "rbf.fitting": "fitting",
    "rbf.functions": "distance functions rbf.distance",
    "rbf.heads": "heads",
    "rbf.health": "health",
    "rbf.kernels": "kernels",
    "rbf.layer": "layer",
    "rbf.optim": "optim",
    "scoring.card": "scoring.results scoring.table",
    "scoring.evaluate": "scoring.labels",
    "scoring.score": "scoring.scoring",
    "scoring.targets": "scoring.foreign",
    "study.executors": "study.slurm",
    "study.plan": "study.grid",
    "study.results": "study.table",
    "training.build": "training.building training.loggers training.schedule",
    "training.callbacks": "training.guards training.monitor training.progress training.saving",
    "training.run": "training.summary",
    "training.rundir": "training.conventions training.directory training.export training.versions",
}
MOVED = {f"radial.{old}": f"radial.{new}" for new, olds in _NOW.items() for old in olds.split()}


class Finder(MetaPathFinder, Loader):
    """Answers to an old name with what the module of the new one holds."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, MOVED[module.__name__]
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2)
        held = vars(import_module(new)).items()
        vars(module).update({name: value for name, value in held if not name.startswith("__")})


def install() -> None:
    """After the finders of the system: asked only for names that nobody else knows."""
    sys.meta_path.append(Finder())
