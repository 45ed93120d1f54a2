# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Tune without labels
#
# Learning rate and temperature of SimCLR on digits, searched by a score that needs no labels. A
# search is a study whose settings have ranges. Needs `pip install 'radial-ssl[tune]'`.

# %%
import tempfile
from pathlib import Path

import radial.study

plan = {
    "name": "digits",
    "constants": {"data": "digits", "backbone": "resnet9-w0.0625", "epochs": 3},
    "methods": {
        "simclr": {"base_lr": {"low": 0.01, "high": 1.0, "log": True}, "temperature": [0.1, 0.5]}
    },
    "heads": ["rbfn"],
    "tune": {"trials": 4, "confirm": 1},
}
folder = Path(tempfile.mkdtemp())
result = radial.study.run(plan, out=folder / "search", workers=1)
result

# %% [markdown]
# ## Every trial

# %%
columns = ["base_lr", "temperature", "value", "accuracy"]
table = result.table
table[[name for name in columns if name in table]]

# %% [markdown]
# ## The one chosen
#
# By `view_retrieval` of validation images; accuracy, where there are labels, is shown and not used.

# %%
result.best
