"""SHAP of the settings: the published figures, additivity, and which settings are features."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("shap", reason="SHAP needs shap and xgboost", exc_type=ImportError)
pytest.importorskip("xgboost", reason="SHAP needs shap and xgboost")

from study_cases import published

from radial.study.analysis.peaks import shap_table, varying

# The paper's table "impact of RBFN parameters": mean |φ|, mean φ > 0, mean φ < 0.
PUBLISHED = {
    "imagenet-100": {
        "num_layers": (0.04, 0.08, -0.03),
        "num_kernels": (0.02, 0.02, -0.02),
        "normalize": (0.04, 0.03, -0.04),
        "radial_function=gaussian": (0.11, 0.22, -0.07),
        "radial_function=inverse_multiquadric": (0.03, 0.02, -0.06),
        "radial_function=multiquadric": (0.00, 0.00, -0.00),
        "radial_function=tps": (0.02, 0.05, -0.02),
    },
    "open-images-v7-50": {
        "num_layers": (0.02, 0.03, -0.01),
        "num_kernels": (0.01, 0.01, -0.01),
        "normalize": (0.02, 0.02, -0.02),
        "radial_function=gaussian": (0.07, 0.15, -0.04),
        "radial_function=inverse_multiquadric": (0.00, 0.00, -0.00),
        "radial_function=multiquadric": (0.00, 0.00, -0.00),
        "radial_function=tps": (0.02, 0.05, -0.01),
    },
}


def study(n: int = 96, seed: int = 0) -> pd.DataFrame:
    """A study of two methods in which only depth, normalisation and learning rate matter."""
    random = np.random.default_rng(seed)
    runs = pd.DataFrame(
        {"run": [f"r{i}" for i in range(n)], "data": "digits", "head": "rbfn",
         "method": random.choice(["simclr", "moco"], n), "num_layers": random.choice([2, 3, 4], n),
         "num_kernels": 128, "normalize": random.choice([True, False], n),
         "radial_function": random.choice(["gaussian", "tps"], n),
         "base_lr": random.choice([0.03, 0.12], n), "seed": random.integers(0, 3, n)}
    )  # fmt: skip
    runs["temperature"] = runs["method"].map({"simclr": 0.5, "moco": 0.2})
    runs["accuracy"] = 0.1 * runs["num_layers"] + 0.2 * runs["normalize"] + runs["base_lr"]
    return runs


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_table(name: str) -> None:
    table, values = shap_table(published(name, "rbfn"))
    found = table.set_index("feature")[["mean_abs", "mean_positive", "mean_negative"]]
    assert found.index.tolist() == list(PUBLISHED[name])
    for feature, expected in PUBLISHED[name].items():
        assert np.round(found.loc[feature].tolist(), 2) == pytest.approx(expected, abs=1e-9)
    assert len(values) == 216 * 7


def test_what_varies_is_a_feature() -> None:
    runs = study()
    names = ["num_layers", "normalize", "radial_function", "base_lr"]  # temperature is the method's
    assert varying(runs) == names
    table, values = shap_table(runs)
    found = table.set_index("feature")
    encoded = ["num_layers", "normalize", "radial_function=gaussian", "radial_function=tps",
               "base_lr"]  # fmt: skip
    assert found.index.tolist() == encoded
    assert found["mean_abs"].drop(index=encoded[2:4]).min() > 10 * found["mean_abs"][encoded[2]]
    # φ of one run add up to its prediction, up to one number for all runs
    total = values.groupby("run")["phi"].sum().loc[runs["run"]].to_numpy()
    rest = runs["accuracy"].to_numpy() - total
    assert rest.std() < 0.005
    # an additive target: φ of normalisation is 0.2 (value − its mean in the background)
    normalize = values[values["feature"] == "normalize"].groupby("value")["phi"].mean()
    assert normalize[1.0] - normalize[0.0] == pytest.approx(0.2, abs=0.01)


def test_chosen_features_missing_values_and_other_heads() -> None:
    runs = study()
    runs["queue_size"] = np.where(runs["method"] == "moco", 64 + 64 * (runs["seed"] > 0), np.nan)
    others = runs.assign(head="default", accuracy=0.0, run="other")
    table, values = shap_table(pd.concat([runs, others]), features=["base_lr", "queue_size"])
    assert table["feature"].tolist() == ["base_lr", "queue_size"]
    assert len(values) == 2 * len(runs)
    assert values["value"].isna().sum() == (runs["method"] == "simclr").sum()
    assert values["phi"].notna().all()


def test_nothing_to_explain() -> None:
    for runs in (study(7), study().assign(head="mlp"), study()[:0], pd.DataFrame()):
        table, values = shap_table(runs)
        assert table.empty
        assert values.empty
        assert "mean_abs" in table
        assert "phi" in values
    table, _ = shap_table(study(), features=["num_kernels"])  # does not vary
    assert table.empty


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown target 'loss'; known: f1"):
        shap_table(study(), target="loss")
    with pytest.raises(ValueError, match="unknown feature 'depth'; known: method"):
        shap_table(study(), features=["depth"])
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match=r"pip install 'radial-ssl\[study\]'"):
        shap_table(study())
