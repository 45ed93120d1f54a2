"""A `lightning` script in the shape of stable-pretraining's: a module is given its forward.

What radial adds is marked: three lines. The monitored parts go by other names here, there is a
validation loop, and a run whose score falls for two epochs is stopped.

python examples/loops/simclr_stable.py FOLDER
"""

import sys
import types

import lightning as pl
import torch
import torchvision
from lightly.data import LightlyDataset
from lightly.loss import NTXentLoss
from lightly.transforms import SimCLRTransform
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn

import radial  # radial 1


class Module(pl.LightningModule):
    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.forward = types.MethodType(forward, self)

    def training_step(self, batch, batch_idx):
        return self(batch, "fit")["loss"]

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch, "validate")["loss"], batch_size=len(batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def simclr(self, batch, stage):
    x0, x1 = batch[0]
    z0, z1 = (self.projector(self.encoder(x)) for x in (x0, x1))
    return {"embedding": z0, "loss": self.loss(z0, z1)}


folder = sys.argv[1]
dataset = LightlyDataset(folder, transform=SimCLRTransform(input_size=32))
train = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
val = torch.utils.data.DataLoader(dataset, batch_size=32)
encoder = torchvision.models.resnet18()
encoder.fc = nn.Identity()
projector = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64))
model = Module(simclr, encoder=encoder, projector=projector, loss=NTXentLoss())
best = ModelCheckpoint(monitor="view_retrieval", mode="max")
stop = EarlyStopping(monitor="view_retrieval", mode="max", patience=2)
monitor = radial.LabelFreeMonitor(folder, backbone="encoder", image_size=32)  # radial 2
trainer = pl.Trainer(
    max_epochs=3,
    num_sanity_val_steps=1,
    devices=1,
    callbacks=[best, stop, monitor, radial.CollapseGuard("projector", stop=True)],  # radial 3
)
trainer.fit(model, train, val)
