"""Frozen features of a dataset: one pass in eval mode, without augmentation.

Legend: N images, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from radial.data.images import Data, Images


@torch.no_grad()
def extract(backbone: nn.Module, images: Images, data: Data, *, batch: int = 256) -> Tensor:
    """(N, F) on the CPU: the centre of each image, normalised; the backbone is left as it was."""
    parameter = next(backbone.parameters())
    mean, std = (value.to(parameter)[:, None, None] for value in (data.mean, data.std))
    margin = (images.stored_size - data.image_size) // 2
    side = slice(margin, margin + data.image_size)
    training = backbone.training
    backbone.eval()
    try:
        features = []
        for start in range(0, len(images), batch):
            rows = range(start, min(start + batch, len(images)))
            x = images.__getitems__(rows)[:, :, side, side].to(parameter) / 255.0
            features.append(backbone((x - mean) / std).float().cpu())
    finally:
        backbone.train(training)
    return torch.cat(features)
