# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Swap a head, and see it live or die
#
# A projection head of radial basis functions in place of the MLP head of SimCLR: the published one
# is dead before the first step, ours is not. Data are scikit-learn's digits; a minute on a core.
# Needs `pip install 'radial-ssl[study]'`.

# %%
import tempfile
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from radial import RBFNProjectionHead, RunConfig, calibrate, diagnose, train
from radial.data import load_data

torch.manual_seed(0)
data = load_data("digits")
images = data.train[range(512)].float() / 255
images.shape

# %% [markdown]
# ## Before training
#
# Features of any backbone will do. `diagnose` runs them through a head and says what it sees.

# %%
backbone = nn.Sequential(
    nn.Conv2d(3, 64, 5, stride=2), nn.ReLU(), nn.Conv2d(64, 256, 5, stride=2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(),
)  # fmt: skip
with torch.no_grad():
    features = backbone(images)
heads = {
    "published": RBFNProjectionHead.paper(256, 2048, 128, num_kernels=128),
    "ours": RBFNProjectionHead(256, 2048, 128),
    "ours, calibrated": calibrate(RBFNProjectionHead(256, 2048, 128), features),
}
reports = {name: diagnose(head, features) for name, head in heads.items()}
pd.DataFrame({name: {"status": r.status, "verdict": r.verdict} for name, r in reports.items()}).T

# %% [markdown]
# ## In training
#
# The same SimCLR run with each head, by name. `rbfn-paper` is the published one.

# %%
folder = Path(tempfile.mkdtemp())
results = {
    head: train(RunConfig(method="simclr", head=head, data="digits", backbone="resnet9-w0.0625",
                          epochs=2, out=str(folder / head), threads=1))
    for head in ("default", "rbfn", "rbfn-paper")
}  # fmt: skip
table = pd.DataFrame(
    {
        head: {"verdict": r.verdict, "loss": r.train_loss, "of a constant output": r.constant_loss}
        for head, r in results.items()
    }
).T
table

# %% [markdown]
# The published head's loss is that of a constant output: no gradient reaches the backbone.

# %%
assert results["rbfn-paper"].verdict == "dead head"
assert results["rbfn"].verdict == "ok"
