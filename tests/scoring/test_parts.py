"""Which images of a dataset are scored: all of them, unless a target was trained on some here."""

from __future__ import annotations

import pytest

from radial.data import load_data
from radial.scoring.bench import Bench
from radial.scoring.score import score
from radial.scoring.settings import Settings
from radial.scoring.targets import find
from radial.training.rundir import export

MODEL = "resnet9-w0.125@none"
FEW = {"scores": ("rankme",), "repeats": 0, "cache": False, "view_images": 16, "views": 2}


def told(targets: list[str], folder, **changes) -> list[tuple[str, int]]:
    cards = score(targets, settings=Settings(data=f"folder:{folder}", **FEW, **changes))
    return [(card.data["part"], card.data["images"]) for card in cards]


def test_all_images_of_a_folder_count(runs, folder) -> None:
    data = load_data(f"folder:{folder}")
    everything = sum(1 for path in folder.rglob("*") if path.is_file())
    assert len(data.all) == everything > 4 * len(data.test)
    assert told([MODEL], folder) == [("all", everything)]
    assert told([MODEL], folder, part="train") == [("train", len(data.train))]
    both = told([MODEL, str(runs["live"])], folder)
    assert both == [("test", len(data.test))] * 2  # one table, the same images


@pytest.mark.parametrize(
    ("trained_on", "part"),
    [("", "all"), ("digits", "all"), ("folder-other", "all"), ("folder-{}", "test")],
)
def test_only_what_was_trained_on_these_images_leaves_them_out(folder, trained_on, part) -> None:
    data = load_data(f"folder:{folder}")
    names = ["", trained_on.format(folder.name)]
    bench = Bench(Settings(data=f"folder:{folder}"), None, data, trained_on=names)
    assert bench.part(data) == part


def test_an_export_knows_its_data(runs, folder, tmp_path) -> None:
    file = tmp_path / "backbone.safetensors"
    export(runs["live"], backbone=file)
    assert (
        find(str(file)).trained_on == find(str(runs["live"])).trained_on == f"folder-{folder.name}"
    )
