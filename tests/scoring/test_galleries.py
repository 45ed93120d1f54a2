"""Views as a choice: how they are drawn, what they are stated as, and what does not compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from radial.data import load_data
from radial.data.augmentations import recipe, scoring_view
from radial.evaluation.features import extract_layers
from radial.metrics.multiview import rotation_probe
from radial.metrics.retrieval import acr, arc
from radial.metrics.scores import Score, compare
from radial.scoring.leaderboard import leaderboard
from radial.scoring.score import score
from radial.scoring.settings import Settings
from radial.scoring.status import annotated
from radial.scoring.targets import find
from radial.training.build import build_views, starting_backbone
from radial.training.config import from_dict

NAMES = ("view_retrieval@backbone", "lidar@backbone", "rankme@backbone", "arc", "rotation_probe")


def settings(folder: Path, **changes: object) -> Settings:
    given = {"data": f"folder:{folder}", "part": "train", "images": 32, "view_images": 24}
    given |= {"views": 3, "repeats": 2, "cache": False, "scores": NAMES}
    return Settings(**(given | changes))


def test_each_choice_draws_other_views_and_says_so(runs, folder) -> None:
    values = {}
    for augment in ("fixed", "crop", "strong", "own"):
        (card,) = score([str(runs["mlp"])], settings=settings(folder, augment=augment))
        found = card.score("view_retrieval@backbone")
        values[augment] = found.value
        assert found.gallery.startswith(f"24 images × 3 views, {augment}: ")
        assert card.data["gallery"] == found.gallery
        assert card.score("rankme@backbone").gallery == ""
        assert card.score("rotation_probe@backbone").gallery == ""
    assert len({values[name] for name in ("fixed", "crop", "strong")}) == 3
    assert values["own"] == values["fixed"]  # on small images MoCo's views are SimCLR's
    with pytest.warns(FutureWarning, match="fixed, crop, strong, own"):
        old = settings(folder, augment="simclr")
    (card,) = score([str(runs["mlp"])], settings=old)
    assert card.score("view_retrieval@backbone").value == values["fixed"]


def test_the_mean_over_recipes_is_that_of_each_alone(runs, folder) -> None:
    """Whatever --augment says of the other scores; the head's outputs are read, too."""
    means = []
    for augment in ("fixed", "crop", "strong", "own"):
        names = ("view_retrieval", "view_retrieval_recipes")
        asked = settings(folder, augment=augment, scores=names, repeats=0)
        (card,) = score([str(runs["mlp"])], settings=asked)
        means.append({s.layer: s for s in card.scores if s.name == names[1]})
        means[-1]["alone"] = {s.layer: s.value for s in card.scores if s.name == names[0]}
    for layer in ("backbone", "projector"):
        expected = fmean(found["alone"][layer] for found in means[:3])
        assert [found[layer].value for found in means] == pytest.approx([expected] * 4)
        galleries = {found[layer].gallery for found in means}
        assert galleries == {"24 images × 3 views, fixed, crop, strong: 16 px"}


def test_the_recipes() -> None:
    fixed = scoring_view("fixed", 32)
    assert fixed == recipe("simclr", 32)[0]
    crop, strong = scoring_view("crop", 224), scoring_view("strong", 224)
    assert (crop.jitter, crop.grey, crop.blur) == (0.0, 0.0, 0.0)
    assert crop.scale == scoring_view("fixed", 224).scale
    assert strong.brightness > scoring_view("fixed", 224).brightness
    with pytest.raises(ValueError, match="is not one of"):
        scoring_view("own", 32)


def test_scores_of_different_views_are_not_compared(runs, folder) -> None:
    target = str(runs["mlp"])
    (first,) = score([target], settings=settings(folder))
    (second,) = score([target], settings=settings(folder, views=4))
    key = "view_retrieval@backbone"
    with pytest.raises(ValueError, match="of different views does not compare: 24 images × 3"):
        compare(first.score(key), second.score(key))
    board = leaderboard([first, replace(second, target="other")], key)
    assert board.best is None
    assert board.answer.startswith(f"not ranked: {key} of different views or kernels does not")
    assert "× 3 views" in board.answer
    assert "× 4 views" in board.answer
    other = leaderboard([first, replace(second, target="other")], "rankme@backbone")
    assert other.best is not None


def test_own_views_differ_between_methods_and_only_lidar_compares(runs, folder) -> None:
    asked = settings(folder, augment="own", views=16, scores=NAMES[:2])
    cards = score([str(runs["live"]), str(runs["collapsed"])], settings=asked)  # SimCLR and BYOL
    lidar, retrieval = "lidar@backbone", "view_retrieval@backbone"
    assert {card.score(lidar).gallery for card in cards} == {"24 images × 16 views, own"}
    assert len({card.score(retrieval).gallery for card in cards}) == 2
    with pytest.raises(ValueError, match="does not say how it was trained"):
        score(["resnet9-w0.0625@none"], settings=asked)
    with pytest.raises(ValueError, match="views must be at most 16"):
        settings(folder, views=17)


def test_relative_confusion_is_to_the_backbone_before_the_first_step(runs, folder) -> None:
    """By a way of its own: the config's seed, the views drawn again, the plain functions."""
    cards = score([str(runs["mlp"]), "resnet9-w0.0625@none"], settings=settings(folder))
    checkpoint = torch.load(runs["mlp"] / "last.ckpt", weights_only=True)
    config = from_dict(checkpoint["radial"]["config"])
    facts = checkpoint["radial"]
    data = load_data(f"folder:{folder}", image_size=facts["image_size"])
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:24]
    start, _ = starting_backbone(config, data, facts["stem"])
    common = {"mean": torch.tensor(facts["mean"]), "std": torch.tensor(facts["std"])}
    common |= {"image_size": data.image_size}
    images = data.train.subset(order)
    view = scoring_view("fixed", data.image_size)
    views = extract_layers(start, None, images, view=view, q=3, seed=0, **common).backbone
    (plain,) = score([str(runs["mlp"])], settings=settings(folder, scores=("acr@backbone",)))
    expected = arc(plain.score("acr@backbone").value, acr(views))
    assert cards[0].score("arc@backbone").value == pytest.approx(expected)
    assert cards[1].score("arc@backbone") is None
    assert build_views(config, 32) == recipe("moco", 32)


def test_turned_images_are_turned(runs, folder) -> None:
    """A layer that gives the pixels back: each turn is torch's own of the plain image."""
    data = load_data(f"folder:{folder}")
    images, size = data.train.subset(range(8)), data.image_size
    common = {"mean": data.mean, "std": data.std, "image_size": size}
    pixels = torch.nn.Flatten()
    plain = extract_layers(pixels, None, images, **common).backbone.view(8, 3, size, size)
    turned = extract_layers(pixels, None, images, turned=True, **common).backbone
    assert turned.shape == (8, 4, 3 * size * size)
    for quarter in range(4):
        expected = torch.rot90(plain, quarter, (2, 3)).flatten(1)
        assert torch.equal(turned[:, quarter], expected)
    with pytest.raises(ValueError, match="turned or seen by random views"):
        extract_layers(pixels, None, images, view=recipe("simclr", 32)[0], turned=True, **common)
    (card,) = score([str(runs["mlp"])], settings=settings(folder))
    found = card.score("rotation_probe@backbone")
    assert found.samples == 24
    assert 0.0 <= found.value <= 1.0
    assert rotation_probe(turned) >= 0.0


def test_a_saturated_retrieval_is_warned_of_on_the_card(runs) -> None:
    found = Score(
        name="view_retrieval", layer="backbone", value=0.995, low=None, high=None, samples=8,
        better="higher",
    )  # fmt: skip
    target = find(str(runs["mlp"]))
    scores = [found, replace(found, value=0.9), replace(found, name="acr", value=0.004)]
    full, roomy, confusion = annotated(scores, target, "ok")
    assert full.warning.startswith("no room left (0.995)")
    assert confusion.warning.startswith("no room left (0.996)")
    assert roomy.warning == ""
