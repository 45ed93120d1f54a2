"""Checkpoints as other projects write them, around given tensors; real classes of theirs where
they are installed, classes of the same names where they are not.
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


def prefixed(prefix: str, state: State) -> State:
    return {prefix + key: value for key, value in state.items()}


def another(state: State) -> State:
    """A copy that is plainly not the same network."""
    return {
        key: value * 0.5 if value.is_floating_point() else value for key, value in state.items()
    }


def namespace() -> argparse.Namespace:
    return argparse.Namespace(arch="x", lr=0.1, output_dir=Path("out"), nested=argparse.Namespace())


def config() -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create({"name": "byol", "optimizer": {"lr": 0.3, "exclude": ["bias", 1]}})


class Unknown:
    """A class that only its project has; it must not be importable when the file is read."""

    def __init__(self) -> None:
        self.settings = {"depth": 3}


def save(content: Any, path: Path, **options: Any) -> Path:
    """Write with a class under a name of a package that is not installed."""
    module = types.ModuleType("their_package")
    Unknown.__module__, Unknown.__qualname__ = "their_package", "Unknown"
    module.Unknown = Unknown  # type: ignore[attr-defined]
    sys.modules["their_package"] = module
    try:
        torch.save(content, path, **options)
    finally:
        del sys.modules["their_package"]
    return path


# Each: what a project's file holds around an online network and its momentum copy.
LAYOUTS: dict[str, Callable[[State, State], Any]] = {
    "plain": lambda own, slow: own,
    "MoCo v2": lambda own, slow: {
        "epoch": 200,
        "arch": "resnet50",
        "state_dict": prefixed("module.encoder_q.", own)
        | prefixed("module.encoder_k.", slow)
        | {"module.queue": torch.zeros(128, 8), "module.queue_ptr": torch.zeros(1).long()},
        "optimizer": {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": []},
    },
    "MoCo v3": lambda own, slow: {
        "state_dict": prefixed("module.base_encoder.", own)
        | prefixed("module.momentum_encoder.", slow)
        | {"module.predictor.0.weight": torch.zeros(4, 4)}
    },
    "SimSiam": lambda own, slow: {
        "state_dict": prefixed("module.encoder.", own)
        | {"module.predictor.0.weight": torch.zeros(4, 4)},
        "args": namespace(),
    },
    "DINO": lambda own, slow: {
        "student": prefixed("module.backbone.", own)
        | {"module.head.mlp.0.weight": torch.zeros(4, 4)},
        "teacher": prefixed("backbone.", slow) | {"head.mlp.0.weight": torch.zeros(4, 4)},
        "optimizer": {"state": {}},
        "epoch": 100,
        "args": namespace(),
        "fp16_scaler": {"scale": 1.0},
        "dino_loss": {"center": torch.zeros(1, 8)},
    },
    "iBOT": lambda own, slow: {
        "student": prefixed("module.backbone.", own | {"masked_embed": torch.zeros(1, 8)})
        | {"module.head.last_layer.weight_g": torch.zeros(4, 1)},
        "teacher": prefixed("backbone.", slow),
        "ibot_loss": {"center": torch.zeros(1, 8), "center2": torch.zeros(1, 1, 8)},
        "args": namespace(),
    },
    "MAE": lambda own, slow: {
        "model": own
        | {"mask_token": torch.zeros(1, 1, 8), "decoder_pos_embed": torch.zeros(1, 5, 8)}
        | {"decoder_blocks.0.norm1.weight": torch.zeros(8), "decoder_embed.weight": torch.zeros(8)},
        "optimizer": {"state": {}},
        "scaler": {"scale": 1.0},
        "args": namespace(),
    },
    "I-JEPA": lambda own, slow: {
        "encoder": prefixed("module.", own),
        "predictor": {"module.predictor_embed.weight": torch.zeros(4, 4)},
        "target_encoder": prefixed("module.", slow),
        "opt": {"state": {}},
        "scaler": None,
        "epoch": 3,
    },
    "solo-learn": lambda own, slow: {
        "state_dict": prefixed("backbone.", own)
        | prefixed("momentum_backbone.", slow)
        | {"projector.0.weight": torch.zeros(4, 4), "classifier.weight": torch.zeros(4, 4)},
        "hyper_parameters": config(),
        "epoch": 3,
    },
    "lightly": lambda own, slow: {
        "state_dict": prefixed("backbone.", own)
        | prefixed("backbone_momentum.", slow)
        | {"projection_head_other.0.weight": torch.zeros(4, 4)},
        "pytorch-lightning_version": "2.5",
    },
    "lightly-train": lambda own, slow: {
        "state_dict": prefixed("student_embedding_model.wrapped_model._model.", own)
        | prefixed("teacher_embedding_model.wrapped_model._model.", slow),
        "hyper_parameters": {"wrapped": nn.Sequential(nn.Linear(2, 2)), "settings": Unknown()},
        "train_model": nn.Linear(2, 2),
    },
    "stable-pretraining": lambda own, slow: {
        "state_dict": prefixed("backbone.student.", own)
        | prefixed("backbone.teacher.", slow)
        | {"callbacks_modules.probe.weight": torch.zeros(4, 4)},
        "callbacks": {"x": {"best": torch.zeros(3)}},
    },
    "VISSL": lambda own, slow: {
        "phase_idx": 3,
        "classy_state_dict": {
            "base_model": {
                "model": {
                    "trunk": prefixed("_feature_blocks.", own),
                    "heads": {"0.clf.0.weight": torch.zeros(4, 4)},
                }
            }
        },
    },
    "mmselfsup": lambda own, slow: {
        "meta": {"seed": 0, "config": "x"},
        "state_dict": prefixed("backbone.", own)
        | prefixed("target_net.0.", slow)
        | {"neck.fc.weight": torch.zeros(4, 4), "head.weight": torch.zeros(4, 4)},
    },
    "EMA beside it": lambda own, slow: {"model": own, "model_ema": slow, "args": Unknown()},
}
WITHOUT_COPY = ("plain", "SimSiam", "MAE", "VISSL")
