"""SimCLR in the shape of LightlySSL's Lightning example; what radial adds is marked: three lines.

The module is theirs in other words: the same parts by the same names, the same views, loss and
optimiser. Images come from a folder, batches and epochs are few, so that a laptop is enough.

python examples/loops/simclr_lightning.py FOLDER
"""

import sys

import pytorch_lightning as pl
import torch
import torchvision
from lightly.data import LightlyDataset
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from torch import nn

import radial  # radial 1


class SimCLR(pl.LightningModule):
    def __init__(self):
        super().__init__()
        resnet = torchvision.models.resnet18()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1])
        self.projection_head = SimCLRProjectionHead(512, 2048, 2048)
        self.criterion = NTXentLoss()

    def forward(self, x):
        return self.projection_head(self.backbone(x).flatten(start_dim=1))

    def training_step(self, batch, batch_index):
        x0, x1 = batch[0]
        return self.criterion(self.forward(x0), self.forward(x1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)


model = SimCLR()
folder = sys.argv[1]
transform = SimCLRTransform(input_size=32)
dataset = LightlyDataset(folder, transform=transform)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
accelerator = "gpu" if torch.cuda.is_available() else "cpu"
monitor = radial.LabelFreeMonitor(folder, image_size=32)  # radial 2
trainer = pl.Trainer(
    max_epochs=3,
    devices=1,
    accelerator=accelerator,
    callbacks=[monitor, pl.callbacks.ModelCheckpoint(monitor="view_retrieval", mode="max")],  # 3
)
trainer.fit(model=model, train_dataloaders=dataloader)
