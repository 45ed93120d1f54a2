"""radial: self-supervised learning with RBFN heads, measurable without labels.

Names are imported when first used, so that ``import radial`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from radial._moved import install as _install

__version__ = "0.2.0.dev0"

__all__ = [
    "CollapseGuard",
    "Kernels",
    "LabelFreeMonitor",
    "Monitor",
    "RBFLayer",
    "RBFNPredictionHead",
    "RBFNProjectionHead",
    "RunConfig",
    "RunResult",
    "Scores",
    "calibrate",
    "default_head",
    "diagnose",
    "evaluate",
    "fit_head",
    "functions",
    "load_kernels",
    "metrics",
    "parameter_groups",
    "resume",
    "score",
    "sns",
    "train",
]

_HOME = {
    "CollapseGuard": "radial.training.monitoring",
    "LabelFreeMonitor": "radial.training.monitoring",
    "Monitor": "radial.evaluation.monitor",
    "RBFLayer": "radial.rbf.layer",
    "RBFNProjectionHead": "radial.rbf.heads",
    "RBFNPredictionHead": "radial.rbf.heads",
    "default_head": "radial.rbf.heads",
    "calibrate": "radial.rbf.calibration",
    "diagnose": "radial.rbf.health",
    "sns": "radial.metrics.separation",
    "Kernels": "radial.rbf.kernels",
    "load_kernels": "radial.rbf.kernels",
    "parameter_groups": "radial.rbf.optim",
    "RunConfig": "radial.training.config",
    "RunResult": "radial.training.rundir",
    "train": "radial.training.run",
    "Scores": "radial.metrics.scores",
    "evaluate": "radial.scoring.evaluate",
    "fit_head": "radial.evaluation.fit_head",
    "score": "radial.scoring.score",
    "resume": "radial.training.run",
}

if TYPE_CHECKING:
    from radial import metrics
    from radial.evaluation.fit_head import fit_head
    from radial.evaluation.monitor import Monitor
    from radial.metrics.scores import Scores
    from radial.metrics.separation import sns
    from radial.rbf import functions
    from radial.rbf.calibration import calibrate
    from radial.rbf.heads import RBFNPredictionHead, RBFNProjectionHead, default_head
    from radial.rbf.health import diagnose
    from radial.rbf.kernels import Kernels, load_kernels
    from radial.rbf.layer import RBFLayer
    from radial.rbf.optim import parameter_groups
    from radial.scoring.evaluate import evaluate
    from radial.scoring.score import score
    from radial.training.config import RunConfig
    from radial.training.monitoring import CollapseGuard, LabelFreeMonitor
    from radial.training.run import resume, train
    from radial.training.rundir import RunResult


_install()


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            value = getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            from radial.checks import with_hint

            raise with_hint(error) from None
    elif name in __all__:
        value = import_module(f"radial.rbf.{name}" if name == "functions" else f"radial.{name}")
    else:
        raise AttributeError(f"module 'radial' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
