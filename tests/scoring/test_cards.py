"""The card of each kind of target: what is computed, what is called dead, what is warned of."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import time
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from radial.backbones import build_backbone
from radial.cli import main
from radial.data import load_data
from radial.evaluation.features import extract
from radial.metrics.registry import SCORES
from radial.metrics.spectra import rankme
from radial.presentation import GREY
from radial.scoring.card import Card
from radial.scoring.leaderboard import gap, leaderboard
from radial.scoring.page import page
from radial.scoring.result import Result
from radial.scoring.score import score
from radial.scoring.settings import Settings
from radial.training.config import RunConfig
from radial.training.run import train


@pytest.fixture(scope="module")
def cards(runs, folder):
    """The four runs and an untrained backbone side by side, on the same images."""
    targets = [*map(str, runs.values()), "resnet9-w0.0625@none"]
    settings = Settings(
        data=f"folder:{folder}", part="train", images=64, view_images=32, repeats=4, cache=False
    )
    return dict(zip([*runs, "untrained"], score(targets, settings=settings, figures=True)))


def test_the_dead_and_the_collapsed_are_called_so(cards) -> None:
    found = {name: card.status for name, card in cards.items()}
    assert found == {
        "live": "ok",
        "dead": "dead head",
        "mlp": "ok",
        "collapsed": "collapsed",
        "untrained": "untrained",
    }
    assert cards["dead"].reason.startswith("εr ≈ ")
    # In which of these ways it ends differs with the last bits of the processor's arithmetic.
    assert re.match(
        r"alive at the start, now (dead|saturated|constant): ", cards["collapsed"].reason
    )
    assert cards["live"].reason == ""


def test_full_card_has_every_score(cards) -> None:
    keys = {score.key for score in cards["live"].scores}
    assert keys == {f"{name}@{layer}" for name, info in SCORES.items() for layer in info.layers}
    assert {score.layer for score in cards["untrained"].scores} == {"backbone"}
    assert {score.layer for score in cards["mlp"].scores} == {"backbone", "projector"}
    for one in cards["live"].scores:
        assert math.isfinite(one.value), one.key
        assert one.low is None or one.low <= one.value <= one.high


def test_values_are_those_of_the_functions(cards, folder) -> None:
    backbone = build_untrained()
    data = load_data(f"folder:{folder}")
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    features = extract(backbone.eval(), data.train.subset(order[:64]), data)
    found = cards["untrained"].score("rankme@backbone")
    assert found.value == pytest.approx(rankme(features), rel=1e-5)
    assert found.samples == 64


def build_untrained() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_backbone("resnet9-w0.0625", image_size=16)[0]


def test_warnings_where_a_score_does_not_apply(cards) -> None:
    assert "the head is dead" in cards["dead"].score("sns_paper@kernels").warning
    across = "compares runs of one method only; here: byol, moco, simclr, unknown"
    assert across in cards["mlp"].score("rankme@projector").warning
    assert "is bounded by 32" in cards["dead"].score("lidar@backbone").warning  # n ≤ D
    assert cards["live"].score("uniformity@projector").warning == ""


def test_kernels_of_a_run_know_where_they_started(cards) -> None:
    found = cards["live"].score("sns_width@kernels")
    assert found.start is not None
    assert found.start != found.value


def test_same_twice(runs, folder, cards) -> None:
    settings = Settings(data=f"folder:{folder}", part="train", images=64, view_images=32, repeats=4)
    for _ in ("computed", "from the cache"):
        (again,) = score([str(runs["live"])], settings=settings)
        values = {s.key: s.value for s in cards["live"].scores if s.name != "rankme"}
        for one in again.scores:
            if one.name != "rankme":
                assert one.value == pytest.approx(values[one.key], rel=1e-9)


def test_json_is_plain(cards) -> None:
    for card in cards.values():
        text = json.dumps(card.to_dict(), allow_nan=False)
        assert json.loads(text)["status"] == card.status
    whole = cards["live"].to_dict()
    assert whole["data"]["images"] == 64
    assert whole["data"]["views"] == 4
    assert "torch" in whole["versions"]
    assert "figures" not in whole


def test_figures(cards) -> None:
    figures = cards["live"].figures
    assert set(figures.spectra) == {"backbone", "projector"}
    assert figures.spectra["backbone"][0] == 1.0
    assert len(figures.widths) == len(figures.kernel_map) == 8
    assert len(figures.feature_map) == len(figures.nearest) == 64
    assert 0.0 < figures.map_variance <= 1.0
    atlas = figures.atlas
    assert atlas.images.shape == (8, 8, 3, 16, 16)
    assert sum(atlas.shares) == pytest.approx(1.0)
    assert list(atlas.shares) == sorted(atlas.shares, reverse=True)
    assert cards["untrained"].figures.atlas is None


def test_ranking(cards) -> None:
    board = leaderboard([cards[name] for name in ("dead", "untrained", "live")])
    assert board.key == "view_retrieval@backbone"
    assert [place.mark for place in board.places] == ["1", "floor", "–"]
    assert board.best is cards["live"]
    assert board.cards[-1] is cards["dead"]
    assert board.places[-1].why.startswith("dead head: εr ≈ ")
    by = leaderboard([cards["live"], cards["mlp"]], by="rankme@backbone")
    values = [card.score("rankme@backbone").value for card in by.cards]
    assert values == sorted(values, reverse=True)
    alone = leaderboard([cards["live"], cards["mlp"]], by="sns_width")
    assert [place.why for place in alone.places] == ["", "it has no sns_width@kernels"]
    with pytest.raises(ValueError, match="no target has sns_width@kernels"):
        leaderboard([cards["mlp"], cards["untrained"]], by="sns_width")
    shared = leaderboard([cards["untrained"], cards["live"]], by="lidar")  # one has no projector
    assert shared.key == "lidar@backbone"


def with_value(card: Card, status: str, value: float) -> Card:
    """A card with another status and, in every half-sample, another value of one score."""
    (one,) = (s for s in card.scores if s.key == "view_retrieval@backbone")
    moved = replace(one, value=value, replicates=tuple(value for _ in one.replicates))
    return replace(card, target=f"{status} {value:g}", status=status, scores=(moved,))


def test_a_network_without_training_is_the_floor_and_no_contestant(cards) -> None:
    good, bad = (with_value(cards["live"], "ok", value) for value in (0.9, 0.2))
    floor = with_value(cards["live"], "untrained", 0.5)
    found = Result([floor, bad, good])
    assert [card.target for card in found.board.cards] == ["ok 0.9", "ok 0.2", "untrained 0.5"]
    assert [card.target for card in found] == ["untrained 0.5", "ok 0.2", "ok 0.9"]  # as given
    assert found.board.answer.startswith("best: ok 0.9, ahead of ok 0.2 by 0.7")
    low = leaderboard([floor, bad])
    assert low.answer == "best: ok 0.2; not above the floor, untrained 0.5"
    assert leaderboard([floor, good]).answer == "best: ok 0.9, above the floor, untrained 0.5"
    assert leaderboard([floor, floor]).best is None
    console = Console(file=io.StringIO(), width=200)
    found.show(console, every=True)
    assert "untrained 0.5 (floor)" in console.file.getvalue()
    shown = page(found)
    assert 'class="floor"' in shown
    assert f"background:{GREY}" in shown


def test_one_and_the_same_twice_is_not_told_apart(cards) -> None:
    twin = replace(cards["live"], target="twin")
    board = leaderboard([cards["live"], twin])
    assert board.answer == f"best: {board.places[0].name}; not told apart from twin"
    assert gap(board.places[1].behind) == "0 (0 to 0)"


def test_kernels_alone(runs) -> None:
    begin = time.perf_counter()
    live, dead = score([str(runs["live"]), str(runs["dead"])])
    assert time.perf_counter() - begin < 5  # in fact some 50 ms
    assert {s.layer for s in live.scores} == {"kernels"}
    assert live.status == "not measured"
    assert dead.status == "dead head"
    assert "before the first step" in dead.reason or "during training" in dead.reason
    assert live.data == {
        "checkpoint": "last.ckpt, epoch 6",
        "layer": "method.projection_head.layers.2",
        "kernels": 8,
        "dimensions": 24,
    }
    with pytest.raises(ValueError, match="has no RBF kernels: without --data"):
        score([str(runs["mlp"])])
    with pytest.raises(ValueError, match="rankme cannot be read without images: give --data"):
        score([str(runs["live"])], settings=Settings(scores=("rankme",)))


def test_published_checkpoint_without_images(tmp_path) -> None:
    """Only the kernels are there: SNS as published, and the verdict that they cannot reach."""
    path = tmp_path / "published.ckpt"
    state = {
        "projection_head.layers.1.kernels_centers": torch.rand(128, 2048) * 2 - 1,
        "projection_head.layers.1.log_shapes": torch.randn(128) * 0.1,
        "projection_head.layers.1.weights": torch.zeros(2048, 128),
    }
    torch.save({"state_dict": state}, path)
    (card,) = score([str(path)])
    assert card.score("sns_paper@kernels").value == pytest.approx(0.237, abs=4e-3)
    assert card.status == "dead head"
    assert card.reason.startswith("ε‖c_i−c_j‖ ≈ 3")


def test_kernels_fitted_to_any_backbone(folder) -> None:
    settings = Settings(
        data=f"folder:{folder}", part="train", images=64, view_images=64, repeats=0, fit_head=True
    )
    (card,) = score(["resnet9-w0.0625@none"], settings=settings, figures=True)
    assert math.isfinite(card.score("kernel_information@kernels").value)
    assert any("kernels fitted to frozen features" in line for line in card.warnings)
    assert card.figures.atlas is not None
    assert card.score("rankme@projector") is None  # the fitted head is not the model's


def test_broken_network_gets_a_card(runs, folder, tmp_path) -> None:
    checkpoint = torch.load(runs["live"] / "last.ckpt", weights_only=True)
    checkpoint["state_dict"]["method.backbone.conv1.weight"].fill_(math.nan)
    torch.save(checkpoint, tmp_path / "nan.ckpt")
    settings = Settings(data=f"folder:{folder}", part="train", images=32, repeats=0)
    (card,) = score([str(tmp_path / "nan.ckpt")], settings=settings)
    assert card.status == "broken"
    assert "NaN or inf" in card.reason
    assert {s.layer for s in card.scores} == {"kernels"}


def test_kernels_of_a_diverged_run_are_broken_not_an_error(runs, tmp_path) -> None:
    checkpoint = torch.load(runs["live"] / "last.ckpt", weights_only=True)
    checkpoint["state_dict"]["method.projection_head.layers.2.log_shapes"].fill_(math.nan)
    torch.save(checkpoint, tmp_path / "nan.ckpt")
    alive, broken = score([str(runs["live"]), str(tmp_path / "nan.ckpt")])
    assert (alive.status, broken.status) == ("not measured", "broken")
    assert broken.scores == ()


def test_a_residual_head_with_dead_kernels_is_not_called_collapsed(runs, folder, tmp_path) -> None:
    """x + RBF(x) still carries what x does: the kernels are dead, the head is not."""
    checkpoint = torch.load(runs["live"] / "last.ckpt", weights_only=True)
    checkpoint["state_dict"]["method.projection_head.layers.2.log_shapes"].add_(3.0)
    torch.save(checkpoint, tmp_path / "sharp.ckpt")
    settings = Settings(data=f"folder:{folder}", part="train", images=64, repeats=0, cache=False)
    (card,) = score([str(tmp_path / "sharp.ckpt")], settings=settings)
    assert card.status == "dead kernels"


def test_random_weights_without_batch_norm_are_untrained(folder) -> None:
    settings = Settings(
        data=f"folder:{folder}", part="train", images=16, view_images=8, repeats=0, cache=False,
        scores=("rankme",),
    )  # fmt: skip
    (card,) = score(["timm:vit_tiny_patch16_224@none"], settings=settings)
    assert card.status == "untrained"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part": "tset"}, "unknown part 'tset'"),
        ({"images": 3}, "images must be an integer of at least 16"),
        ({"views": 1}, "views must be an integer of at least 2"),
        ({"augment": "none"}, "unknown augment 'none'"),
        ({"radial_function": "gauss"}, "unknown radial_function"),
    ],
)
def test_bad_settings(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**changes)


def test_unknown_score_and_too_few_images(runs, folder) -> None:
    with pytest.raises(ValueError, match="unknown score 'rank'"):
        score([str(runs["live"])], settings=Settings(scores=("rank",)))
    with pytest.raises(ValueError, match="images in its val part; 16 are needed"):
        score([str(runs["live"])], settings=Settings(data=f"folder:{folder}", part="val"))


def test_what_belongs_to_a_study_stays(runs, tmp_path, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["live"], run)
    card = run / "scores.json"
    for before, kept in (('{"asked": "abc", "scores": []}', True), ('{"scores": []}', False)):
        card.write_text(before)
        assert main(["score", str(run)]) == 0
        assert ("belongs to a study and stays" in capsys.readouterr().err) == kept
        assert (card.read_text() == before) == kept


def test_normalised_kernels_are_not_called_dead(folder, tmp_path) -> None:
    """Far from all images, a normalised kernel still answers: its neighbours are as far."""
    run = train(
        RunConfig(
            head="rbfn-normalized", data=f"folder:{folder}", data_root=str(tmp_path / "data"),
            backbone="resnet9-w0.0625", hidden_dim=1024, num_kernels=8, batch_size=16, epochs=1,
            threads=1, out=str(tmp_path / "run"),
        ),
        console=Console(file=io.StringIO()),
    )  # fmt: skip
    (card,) = score([run.directory])
    assert card.status == "not measured"
