"""`radial eval`: the protocol stands beside every number, and features are those of the target."""

from __future__ import annotations

import io
import json

import pytest
import torch
from rich.console import Console

from radial.data import load_data
from radial.evaluation.classification import knn_accuracy
from radial.evaluation.features import extract
from radial.evaluation.probe import probe
from radial.scoring.evaluate import evaluate, print_evaluations
from radial.scoring.settings import EvalSettings
from radial.scoring.targets import build, find


def test_numbers_are_those_of_the_functions(runs, folder) -> None:
    settings = EvalSettings(data=f"folder:{folder}", k=5, cache=False)
    found = evaluate(str(runs["live"]), settings=settings)[0]
    data = load_data(f"folder:{folder}")
    backbone = build(find(str(runs["live"])), image_size=16).backbone
    parts: list[torch.Tensor] = []
    for images in (data.train, data.val, data.test):
        parts += [extract(backbone, images, data), images.labels]
    expected = probe(*parts, protocol="exact", classes=data.classes)
    result = found["probes"]["exact"]
    assert result["accuracy"] == expected.accuracy
    assert result["confusion"] == expected.confusion
    assert [entry["name"] for entry in result["per_class"]] == ["bottom", "top"]
    near = knn_accuracy(*parts[:2], *parts[4:], k=5, temperature=0.1)
    assert found["knn"]["accuracy"] == pytest.approx(near)
    assert (found["knn"]["k"], found["knn"]["temperature"]) == (5, 0.1)


def test_everything_needed_to_repeat_it_is_there(runs, folder) -> None:
    settings = EvalSettings(data=f"folder:{folder}", protocol=("exact", "paper"), seed=3)
    found = evaluate(str(runs["mlp"]), settings=settings)[0]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["data"]["split"] == "stratified 70/10/20, seed 42"
    assert found["data"]["train_images"] == 66
    assert set(found["probes"]) == {"exact", "paper"}
    paper = found["probes"]["paper"]
    assert paper["train_samples"] + paper["val_samples"] + paper["test_samples"] == 20
    assert "plain SGD" in paper["assumptions"]
    assert paper["seed"] == 3
    assert "torch" in found["versions"]
    again = evaluate(str(runs["mlp"]), settings=settings)[0]  # from the cache
    for one in (found, again):
        for result in one["probes"].values():
            del result["seconds"]
    assert found == again


def test_table(runs, folder) -> None:
    settings = EvalSettings(data=f"folder:{folder}", protocol=("exact", "paper"))
    console = Console(file=io.StringIO(), width=200)
    print_evaluations([evaluate(str(runs["live"]), settings=settings)[0]], console)
    text = console.file.getvalue()
    assert "66/10/20" in text
    assert "kNN, k 20, T 0.1" in text
    assert "paper: the labelled test split divided 70/10/20" in text


def test_a_network_that_gives_nan_is_an_error(runs, folder, tmp_path) -> None:
    checkpoint = torch.load(runs["live"] / "last.ckpt", weights_only=True)
    checkpoint["state_dict"]["method.backbone.conv1.weight"].fill_(float("nan"))
    torch.save(checkpoint, tmp_path / "nan.ckpt")
    with pytest.raises(ValueError, match="backbone: features of 66 of 66 images have NaN or inf"):
        evaluate(str(tmp_path / "nan.ckpt"), f"folder:{folder}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": ("linear",)}, "unknown protocol 'linear'; known: 'exact', 'paper'"),
        ({"k": 0}, "k must be an integer of at least 1"),
        ({"temperature": 0.0}, "temperature must be a finite number"),
    ],
)
def test_bad_settings(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        EvalSettings(**changes)
