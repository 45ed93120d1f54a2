"""radial: self-supervised learning with RBFN heads, measurable without labels.

Names are imported when first used, so that ``import radial`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Kernels",
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
    "RBFLayer": "radial.layer",
    "RBFNProjectionHead": "radial.heads",
    "RBFNPredictionHead": "radial.heads",
    "default_head": "radial.heads",
    "calibrate": "radial.calibration",
    "diagnose": "radial.health",
    "sns": "radial.metrics.kernels",
    "Kernels": "radial.kernels",
    "load_kernels": "radial.kernels",
    "parameter_groups": "radial.optim",
    "RunConfig": "radial.training.config",
    "RunResult": "radial.training.directory",
    "train": "radial.training.run",
    "Scores": "radial.metrics.scores",
    "evaluate": "radial.scoring.labels",
    "fit_head": "radial.evaluation.heads",
    "score": "radial.scoring.scoring",
    "resume": "radial.training.run",
}

if TYPE_CHECKING:
    from radial import functions, metrics
    from radial.calibration import calibrate
    from radial.evaluation.heads import fit_head
    from radial.heads import RBFNPredictionHead, RBFNProjectionHead, default_head
    from radial.health import diagnose
    from radial.kernels import Kernels, load_kernels
    from radial.layer import RBFLayer
    from radial.metrics.kernels import sns
    from radial.metrics.scores import Scores
    from radial.optim import parameter_groups
    from radial.scoring.labels import evaluate
    from radial.scoring.scoring import score
    from radial.training.config import RunConfig
    from radial.training.directory import RunResult
    from radial.training.run import resume, train


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in __all__:
        value = import_module(f"radial.{name}")
    else:
        raise AttributeError(f"module 'radial' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
