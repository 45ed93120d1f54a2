"""Modules of 0.1 under their old names: they work in 0.2, with a warning, and go in 0.3."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "radial.calibration": "radial.rbf.calibration",
    "radial.data.decoding": "radial.data.images",
    "radial.data.downloads": "radial.data.sources",
    "radial.data.errors": "radial.checks",
    "radial.data.folders": "radial.data.sources",
    "radial.data.open_images": "radial.open_images",
    "radial.data.pixels": "radial.data.views",
    "radial.data.reading": "radial.data.survey",
    "radial.data.recipes": "radial.data.augmentations",
    "radial.data.splits": "radial.data.images",
    "radial.data.stats": "radial.data.statistics",
    "radial.distance": "radial.rbf.functions",
    "radial.evaluation.heads": "radial.evaluation.fit_head",
    "radial.evaluation.knn": "radial.evaluation.classification",
    "radial.fitting": "radial.rbf.fitting",
    "radial.functions": "radial.rbf.functions",
    "radial.heads": "radial.rbf.heads",
    "radial.health": "radial.rbf.health",
    "radial.kernels": "radial.rbf.kernels",
    "radial.layer": "radial.rbf.layer",
    "radial.metrics.assignments": "radial.metrics.separation",
    "radial.metrics.kernels": "radial.metrics.separation",
    "radial.optim": "radial.rbf.optim",
    "radial.rbf.distance": "radial.rbf.functions",
    "radial.scoring.foreign": "radial.scoring.targets",
    "radial.scoring.labels": "radial.scoring.evaluate",
    "radial.scoring.results": "radial.scoring.card",
    "radial.scoring.scoring": "radial.scoring.score",
    "radial.scoring.table": "radial.scoring.card",
    "radial.study.grid": "radial.study.plan",
    "radial.study.slurm": "radial.study.executors",
    "radial.study.table": "radial.study.results",
    "radial.training.building": "radial.training.build",
    "radial.training.checkpoint": "radial.checkpoints",
    "radial.training.conventions": "radial.training.rundir",
    "radial.training.devices": "radial.devices",
    "radial.training.directory": "radial.training.rundir",
    "radial.training.export": "radial.training.rundir",
    "radial.training.guards": "radial.training.callbacks",
    "radial.training.loggers": "radial.training.build",
    "radial.training.monitor": "radial.training.callbacks",
    "radial.training.progress": "radial.training.callbacks",
    "radial.training.saving": "radial.training.callbacks",
    "radial.training.schedule": "radial.training.build",
    "radial.training.summary": "radial.training.run",
    "radial.training.versions": "radial.training.rundir",
}


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
