"""SimCLR in the shape of LightlySSL's plain PyTorch example; what radial adds: three lines.

The same parts by the same names, the same views without blur, loss and optimiser. Images come from
a folder, batches and epochs are few.

python examples/loops/simclr_pytorch.py FOLDER
"""

import sys

import torch
import torchvision
from lightly.data import LightlyDataset
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from torch import nn

import radial  # radial 1


class SimCLR(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.projection_head = SimCLRProjectionHead(512, 512, 128)

    def forward(self, x):
        return self.projection_head(self.backbone(x).flatten(start_dim=1))


resnet = torchvision.models.resnet18()
model = SimCLR(nn.Sequential(*list(resnet.children())[:-1]))
device = "cuda" if torch.cuda.is_available() else "cpu"
model.to(device)

folder = sys.argv[1]
transform = SimCLRTransform(input_size=32, gaussian_blur=0.0)
dataset = LightlyDataset(folder, transform=transform)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
criterion = NTXentLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
monitor = radial.Monitor(folder, image_size=32)  # radial 2

for epoch in range(3):
    total_loss = 0
    for batch in dataloader:
        x0, x1 = batch[0]
        loss = criterion(model(x0.to(device)), model(x1.to(device)))
        total_loss += loss.detach()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {total_loss / len(dataloader):.4f}")
    print(monitor.keep_best(model, "best.pt"))  # radial 3
