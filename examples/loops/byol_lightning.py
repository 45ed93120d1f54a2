"""BYOL in the shape of LightlySSL's Lightning example; what radial adds is marked: three lines.

The module is theirs in other words: the same parts by the same names, momentum that rises from
0.996 to 1, two kinds of views without blur. Images come from a folder, batches and epochs are few.

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
from lightly.transforms.byol_transform import (
    BYOLTransform,
    BYOLView1Transform,
    BYOLView2Transform,
)
from lightly.utils.scheduler import cosine_schedule
from torch import nn

import radial  # radial 1

EPOCHS = 3


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

    def forward_momentum(self, x):
        y = self.backbone_momentum(x).flatten(start_dim=1)
        return self.projection_head_momentum(y).detach()

    def training_step(self, batch, batch_idx):
        momentum = cosine_schedule(self.current_epoch, EPOCHS, 0.996, 1)
        update_momentum(self.backbone, self.backbone_momentum, m=momentum)
        update_momentum(self.projection_head, self.projection_head_momentum, m=momentum)
        x0, x1 = batch[0]
        there = self.criterion(self.forward(x0), self.forward_momentum(x1))
        back = self.criterion(self.forward(x1), self.forward_momentum(x0))
        return 0.5 * (there + back)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)


model = BYOL()
folder = sys.argv[1]
transform = BYOLTransform(
    view_1_transform=BYOLView1Transform(input_size=32, gaussian_blur=0.0),
    view_2_transform=BYOLView2Transform(input_size=32, gaussian_blur=0.0),
)
dataset = LightlyDataset(folder, transform=transform)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
accelerator = "gpu" if torch.cuda.is_available() else "cpu"
monitor = radial.LabelFreeMonitor(folder, image_size=32)  # radial 2
trainer = pl.Trainer(
    max_epochs=EPOCHS,
    devices=1,
    accelerator=accelerator,
    callbacks=[monitor, pl.callbacks.ModelCheckpoint(monitor="view_retrieval", mode="max")],  # 3
)
trainer.fit(model=model, train_dataloaders=dataloader)
