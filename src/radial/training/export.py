"""Weights out of a run, in files that other code reads without radial."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save

from radial.backbones import build_backbone, save_backbone
from radial.checkpoints import part, read_checkpoint
from radial.files import write_atomically
from radial.training.config import from_dict, slug
from radial.training.rundir import LAST, STOPPED


def export(
    run: Path | str, *, backbone: Path | str | None = None, head: Path | str | None = None
) -> list[str]:
    """Write the backbone, the projection head, or both; one line for each file written.

    ``run`` is the directory of a run, or one of its checkpoints. The backbone has the keys of
    torchvision, lightly or timm, without the classifier: it loads there with ``strict=True`` once
    the model's own classifier is replaced by ``nn.Identity()``. The head's kernels
    are read by :func:`radial.load_kernels`.
    """
    run = Path(run)
    path = run
    if run.is_dir():
        path = run / (LAST if (run / LAST).is_file() else STOPPED)
        if not path.is_file():
            raise ValueError(f"{run} has no checkpoint: not the directory of a run, or too young")
    for file in (backbone, head):
        if file is not None and Path(file).suffix != ".safetensors":
            raise ValueError(f"weights are written as .safetensors, not {str(file)!r}")
    checkpoint = read_checkpoint(path)
    facts, state = checkpoint["radial"], checkpoint["state_dict"]
    config = from_dict(facts["config"])
    lines = []
    if backbone is not None:
        module, info = build_backbone(
            str(config.backbone), image_size=facts["image_size"], stem=facts["stem"]
        )
        module.load_state_dict(part(state, "method.backbone."), strict=True)
        extra = {"mean": json.dumps(facts["mean"]), "std": json.dumps(facts["std"])}
        extra |= {"method": config.method, "head": config.head, "data": slug(config.data)}
        save_backbone(module, backbone, info, extra)
        lines.append(f"{backbone}: {info.name}, {info.feature_dim} features; stem: {info.stem}")
    if head is not None:
        tensors = part(state, "method.projection_head.")
        whole = {f"projection_head.{name}": value.contiguous() for name, value in tensors.items()}
        write_atomically(head, save(whole, {"method": config.method, "head": config.head}))
        lines.append(f"{head}: projection head of {len(whole)} tensors")
    return lines
