# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Rank checkpoints, without labels
#
# Four small runs on digits, one of them with the dead published head; `radial.score` ranks them on
# the same images and views. Needs `pip install 'radial-ssl[study]'`.

# %%
import tempfile
from pathlib import Path

from radial import RunConfig, evaluate, score, train

folder = Path(tempfile.mkdtemp())
runs = {
    "long": {"head": "rbfn", "epochs": 3},
    "short": {"head": "rbfn", "epochs": 1},
    "mlp": {"head": "mlp", "epochs": 2},
    "published": {"head": "rbfn-paper", "epochs": 1},
}
for name, settings in runs.items():
    train(RunConfig(method="simclr", data="digits", backbone="resnet9-w0.0625", threads=1,
                    out=str(folder / name), **settings))  # fmt: skip

# %% [markdown]
# ## The leaderboard

# %%
result = score([folder / name for name in runs], "digits")
result

# %% [markdown]
# Every score, as a frame:

# %%
result.to_pandas()

# %% [markdown]
# The dead head is named, and not ranked.

# %%
statuses = {Path(card.target).name: card.status for card in result}
assert statuses["published"] == "dead head"
assert result.best is not None
statuses

# %% [markdown]
# ## What labels say
#
# Asked afterwards, as a check; nothing above was ranked by them.

# %%
evaluate([folder / name for name in runs], "digits")
