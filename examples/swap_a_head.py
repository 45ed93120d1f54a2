"""Swap the head of a LightlySSL script: SimCLR in plain PyTorch, an RBFN head in one line.

The loop is that of LightlySSL's own example. Three things come from radial: the head, its
calibration on real features before the optimiser is made, and groups in which kernels do not decay.

    python examples/swap_a_head.py                 # RBFN head, digits: about a minute on a CPU
    python examples/swap_a_head.py --head mlp      # LightlySSL's head, to compare with
    python examples/swap_a_head.py --data folder:photos

The checkpoint is a plain state dict. `radial score` rebuilds the head from its keys; the backbone
must be named, unless it is a ResNet of torchvision's (with a folder, add --image-size 32):

    radial score swapped-rbfn.ckpt swapped-mlp.ckpt --data digits --backbone resnet9-w0.125
"""

import argparse

import torch
from lightly.loss import NTXentLoss
from lightly.models import ResNetGenerator
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_pil_image

from radial import RBFNProjectionHead, calibrate, diagnose, parameter_groups
from radial.data import Images, load_data

HEADS = {"mlp": SimCLRProjectionHead, "rbfn": RBFNProjectionHead}
SIZE = 32  # pixels


class Views(Dataset):
    """Two random views of each image."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.transform = SimCLRTransform(SIZE, cj_strength=0.5, gaussian_blur=0.0)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> list[Tensor]:
        return self.transform(to_pil_image(self.images[index]))


class SimCLR(nn.Module):
    def __init__(self, head: str) -> None:
        super().__init__()
        self.backbone = ResNetGenerator("resnet-9", width=0.125)
        self.backbone.linear = nn.Identity()
        self.projection_head = HEADS[head](64, 256, 128)  # <- the line that changes

    def forward(self, images: Tensor) -> Tensor:
        return self.projection_head(self.backbone(images))


@torch.no_grad()
def set_from_features(model: SimCLR, loader: DataLoader) -> None:
    """Put the kernels where the features are, and say whether the head is alive."""
    batches = [model.backbone(torch.cat(views)) for views, _ in zip(loader, range(8))]
    if isinstance(model.projection_head, RBFNProjectionHead):
        calibrate(model.projection_head, batches)
    print(diagnose(model.projection_head, batches))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--head", choices=HEADS, default="rbfn")
    parser.add_argument("--data", default="digits", help="as for radial train: folder:PATH, …")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--out", help="by default swapped-HEAD.ckpt")
    options = parser.parse_args()

    torch.manual_seed(0)
    images = load_data(options.data, image_size=SIZE).train  # its test part is for scoring
    loader = DataLoader(Views(images), options.batch_size, shuffle=True, drop_last=True)
    model, criterion = SimCLR(options.head), NTXentLoss(temperature=0.5)
    set_from_features(model, loader)  # before the optimiser is made
    optimizer = torch.optim.SGD(parameter_groups(model, lr=0.06, weight_decay=5e-4), momentum=0.9)
    for epoch in range(options.epochs):
        total = 0.0
        for view0, view1 in loader:
            loss = criterion(model(view0), model(view1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.3f}")

    path = options.out or f"swapped-{options.head}.ckpt"
    torch.save({"state_dict": model.state_dict()}, path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
