"""Loggers by option, beside metrics.csv; each imported only when asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from radial.training.config import RunConfig

INSTALL = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


def build_loggers(config: RunConfig, directory: Path) -> Any:
    """Lightning's loggers; False where there are none."""
    from pytorch_lightning import loggers

    name, directory = directory.name, directory.resolve()
    built: list[Any] = []
    options: dict[str, Any]
    for kind in config.loggers:
        try:
            if kind == "tensorboard":
                built.append(loggers.TensorBoardLogger(directory, name="tensorboard", version=""))
            elif kind == "mlflow":
                uri = mlflow_uri(directory.parent)
                built.append(loggers.MLFlowLogger("radial", run_name=name, tracking_uri=uri))
            else:
                run = hashlib.sha256(str(directory).encode()).hexdigest()[:16]  # on resume too
                options = {"id": run, "resume": "allow", "save_dir": directory}
                built.append(loggers.WandbLogger(project="radial", name=name, **options))
        except ModuleNotFoundError as error:
            raise ValueError(
                f"logger {kind} is not installed: pip install {INSTALL[kind]}"
            ) from error
    return built or False


def mlflow_uri(directory: Path) -> str:
    """A database beside the runs, by its absolute path: a relative one moves with the shell."""
    return f"sqlite:///{(directory / 'mlflow.db').resolve()}"
