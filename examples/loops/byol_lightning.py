"""BYOL in the shape of LightlySSL's Lightning example; what radial adds is marked: three lines.

python examples/loops/byol_lightning.py FOLDER
"""

import copy
import sys

import pytorch_lightning as pl
import torch
import torchvision
from lightly.data import LightlyDataset
from lightly.loss import NegativeCosineSimilarity
from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.transforms import SimCLRTransform
from torch import nn

import radial  # radial 1


class BYOL(pl.LightningModule):
    def __init__(self):
        super().__init__()
        resnet = torchvision.models.resnet18()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1])
        self.projection_head = BYOLProjectionHead(512, 1024, 256)
        self.prediction_head = BYOLPredictionHead(256, 1024, 256)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)
        self.criterion = NegativeCosineSimilarity()

    def forward(self, x):
        return self.prediction_head(self.projection_head(self.backbone(x).flatten(start_dim=1)))

    @torch.no_grad()
    def target(self, x):
        return self.projection_head_momentum(self.backbone_momentum(x).flatten(start_dim=1))

    def training_step(self, batch, batch_idx):
        update_momentum(self.backbone, self.backbone_momentum, m=0.99)
        update_momentum(self.projection_head, self.projection_head_momentum, m=0.99)
        x0, x1 = batch[0]
        one = self.criterion(self(x0), self.target(x1))
        return 0.5 * (one + self.criterion(self(x1), self.target(x0)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)


folder = sys.argv[1]
dataset = LightlyDataset(folder, transform=SimCLRTransform(input_size=32))
dataloader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
model = BYOL()
monitor = radial.LabelFreeMonitor(folder, image_size=32)  # radial 2
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="auto",
    devices=1,
    callbacks=[monitor, pl.callbacks.ModelCheckpoint(monitor="view_retrieval", mode="max")],  # 3
)
trainer.fit(model, dataloader)
