"""LightlySSL's SimCLR, BYOL and SimSiam modules train two steps with our heads in theirs' place.

The modules follow the shape of LightlySSL's own PyTorch examples: backbone, heads, loss,
momentum update; only the lines that build the heads differ.
"""

from __future__ import annotations

import copy

import pytest
import pytorch_lightning as pl
import torch
from lightly.loss import NegativeCosineSimilarity, NTXentLoss
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from radial import (
    RBFNPredictionHead,
    RBFNProjectionHead,
    calibrate,
    default_head,
    diagnose,
    load_kernels,
    parameter_groups,
)

Heads = tuple[nn.Module, nn.Module]


def backbone() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class SimCLR(nn.Module):
    def __init__(self, projection_head: nn.Module, _: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projection_head = backbone(), projection_head
        self.criterion = NTXentLoss(temperature=0.5)

    def forward(self, x0: Tensor, x1: Tensor) -> Tensor:
        z0, z1 = (self.projection_head(self.backbone(x)) for x in (x0, x1))
        return self.criterion(z0, z1)


class SimSiam(nn.Module):
    def __init__(self, projection_head: nn.Module, prediction_head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projection_head = backbone(), projection_head
        self.prediction_head = prediction_head
        self.criterion = NegativeCosineSimilarity()

    def forward(self, x0: Tensor, x1: Tensor) -> Tensor:
        z0, z1 = (self.projection_head(self.backbone(x)) for x in (x0, x1))
        p0, p1 = self.prediction_head(z0), self.prediction_head(z1)
        return 0.5 * (self.criterion(z0.detach(), p1) + self.criterion(z1.detach(), p0))


class BYOL(nn.Module):
    def __init__(self, projection_head: nn.Module, prediction_head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projection_head = backbone(), projection_head
        self.prediction_head = prediction_head
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)
        self.criterion = NegativeCosineSimilarity()

    def forward(self, x0: Tensor, x1: Tensor) -> Tensor:
        update_momentum(self.backbone, self.backbone_momentum, m=0.99)
        update_momentum(self.projection_head, self.projection_head_momentum, m=0.99)
        p0, p1 = (self.prediction_head(self.projection_head(self.backbone(x))) for x in (x0, x1))
        with torch.no_grad():
            z0, z1 = (self.projection_head_momentum(self.backbone_momentum(x)) for x in (x0, x1))
        return 0.5 * (self.criterion(p0, z1) + self.criterion(p1, z0))


METHODS = {"simclr": SimCLR, "simsiam": SimSiam, "byol": BYOL}


def theirs(method: str) -> Heads:
    predictor = "byol" if method == "simclr" else method
    return default_head(method, 32, 64, 16), default_head(predictor, 16, 64, 16, kind="prediction")


def ours(_: str) -> Heads:
    return (
        RBFNProjectionHead(input_dim=32, hidden_dim=64, output_dim=16),
        RBFNPredictionHead(input_dim=16, hidden_dim=64, output_dim=16),
    )


def two_steps(module: nn.Module) -> list[float]:
    optimizer = torch.optim.SGD(parameter_groups(module, lr=0.05, weight_decay=1e-4), momentum=0.9)
    losses = []
    for _ in range(2):
        loss = module(torch.randn(32, 3, 16, 16), torch.randn(32, 3, 16, 16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("heads", [theirs, ours])
@pytest.mark.parametrize("method", list(METHODS))
def test_two_steps(method: str, heads) -> None:
    module = METHODS[method](*heads(method))
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    losses = two_steps(module)
    assert all(torch.isfinite(torch.tensor(losses)))
    learns = ("weight", "kernels_centers", "log_shapes", "weights")
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and name.endswith(learns):
            assert not torch.equal(parameter, before[name]), name


@pytest.mark.filterwarnings("ignore")  # Lightning's own
@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("heads", [theirs, ours])
@pytest.mark.parametrize("method", list(METHODS))
def test_half_precision_in_a_trainer(method: str, heads, precision: str) -> None:
    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.method, self.losses = METHODS[method](*heads(method)), []

        def training_step(self, views: list[Tensor], _: int) -> Tensor:
            loss = self.method(*views)
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    module = Module()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    quiet = dict.fromkeys(("model_summary", "progress_bar", "checkpointing"), False)
    quiet = {f"enable_{name}": value for name, value in quiet.items()} | {"logger": False}
    trainer = pl.Trainer(max_steps=2, accelerator="cpu", precision=precision, **quiet)
    trainer.fit(module, DataLoader(TensorDataset(*torch.randn(2, 64, 3, 16, 16)), batch_size=32))
    assert torch.isfinite(torch.stack(module.losses).float()).all()
    assert len(module.losses) == 2
    kind = torch.bfloat16 if precision == "bf16-true" else torch.float32
    for name, parameter in module.named_parameters():
        assert parameter.dtype == kind, name
        if parameter.requires_grad and name.endswith(("kernels_centers", "0.weight")):
            assert not torch.equal(parameter, before[name].to(kind)), name


def test_byol_checkpoint_gives_the_kernels_of_the_projection_head(tmp_path) -> None:
    module = BYOL(*ours("byol"))
    features = module.backbone(torch.randn(300, 3, 16, 16)).detach()
    calibrate(module.projection_head, features)
    assert diagnose(module.projection_head, features).alive
    torch.save({"state_dict": module.state_dict()}, tmp_path / "byol.ckpt")
    kernels = load_kernels(tmp_path / "byol.ckpt")[-1]
    torch.testing.assert_close(kernels.centers, module.projection_head.layers[2].centers.detach())
