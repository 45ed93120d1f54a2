"""`radial.score` and `radial.evaluate` with models and images as Python has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

import radial
from radial.data.given import given
from radial.data.images import decode
from radial.scoring.settings import EvalSettings, Settings

FEW: dict[str, Any] = {"scores": ("view_retrieval", "rankme"), "repeats": 2, "cache": False}


def flat(batch: Tensor) -> Tensor:
    return batch.flatten(1)


class Net(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 8, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)


@pytest.fixture(scope="module")
def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


@pytest.fixture(scope="module")
def pixels(files: list[Path]) -> Tensor:
    """What the package itself decodes, of files that are square and of one size."""
    with Image.open(files[0]) as first:
        side = first.width
    return torch.stack([torch.from_numpy(decode(str(path), side)) for path in files])


class Pictures(Dataset):  # type: ignore[type-arg]
    """As torchvision's: a PIL image and its label."""

    def __init__(self, files: list[Path], kind: str = "PIL") -> None:
        self.files, self.kind = files, kind

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.files[index]) as file:
            image = file.copy()
        label = int(self.files[index].parent.name == "top")
        if self.kind == "PIL":
            return image, label
        array = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
        return (array if self.kind == "uint8" else array / 255.0), label


def of_hugging_face(files: list[Path]) -> Any:
    datasets = pytest.importorskip("datasets")
    columns = {"image": [str(f) for f in files], "label": [f.parent.name for f in files]}
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def test_the_same_images_in_every_form_give_the_same(files, folder, pixels) -> None:
    forms = {
        "tensor": pixels,
        "paths": files,
        "pattern": str(folder / "**" / "*.png"),
        "PIL": Pictures(files),
        "uint8": Pictures(files, "uint8"),
        "floats": Pictures(files, "floats"),
        "list": [picture for picture, _ in Pictures(files)],
        "hugging face": of_hugging_face(files),
    }
    values = {}
    for name, images in forms.items():
        card = radial.score(Net(), images, **FEW)[0]
        assert card.data["images"] == len(files), name
        values[name] = card.score("view_retrieval@backbone").value
    assert values == dict.fromkeys(forms, pytest.approx(values["tensor"], abs=1e-6))
    card = radial.score(Net(), str(folder), part="train", **FEW)[0]  # a folder is a dataset by name
    assert card.data["data"] == f"folder:{folder.name}"


def test_a_model_in_every_form(pixels, runs, tmp_path) -> None:
    net = Net().train()
    result = radial.score({"net": net, "function": flat, "run": runs["live"]}, pixels, **FEW)
    assert [card.target for card in result] == ["net", "function", "run"]
    assert net.training  # left as it was
    assert result["run"].method == "simclr"
    assert result["function"].score("rankme@backbone") is not None
    one = radial.score(str(runs["live"]), pixels, **FEW)  # a string is one target, not its letters
    assert len(one) == 1
    assert one[0].target == str(runs["live"])
    twice = radial.score([net, Net(1)], pixels, **FEW)
    assert [card.target for card in twice] == ["Net 1", "Net 2"]
    assert len({card.score("rankme@backbone").value for card in twice}) == 2


def test_a_transform_decides_what_a_model_sees(pixels) -> None:
    from torchvision import transforms as T

    seen: list[tuple[int, ...]] = []

    def watch(batch: Tensor) -> Tensor:
        seen.append(tuple(batch.shape[1:]))
        return batch.flatten(1)

    mean, std = (0.3, 0.2, 0.1), (0.5, 0.6, 0.7)
    side = pixels.shape[-1]
    own = T.Compose([T.ToTensor(), T.Normalize(mean, std)])
    pair = radial.score((watch, T.Compose([T.Resize(8), own])), pixels, **FEW)
    assert {*seen} == {(3, 8, 8)}
    assert "transform of the user's" in pair[0].data["sees"]
    same = radial.score((flat, own), pixels, scores=("rankme",), repeats=0, max_images=32)
    scale = torch.tensor(std)[:, None, None]
    by_hand = lambda x: ((undone(x) - torch.tensor(mean)[:, None, None]) / scale).flatten(1)  # noqa: E731
    plain = radial.score(by_hand, pixels, scores=("rankme",), repeats=0, max_images=32)
    assert side == same[0].data["image_size"]
    assert same[0].score("rankme@backbone").value == pytest.approx(
        plain[0].score("rankme@backbone").value, rel=1e-4
    )


def undone(x: Tensor) -> Tensor:
    """Without ImageNet's statistics, which a function without a transform gets."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return x * std[:, None, None] + mean[:, None, None]


def test_the_result(pixels, tmp_path) -> None:
    result = radial.score({"a": Net(0), "b": Net(1)}, pixels, figures=True, **FEW)
    table = result.to_pandas()
    assert list(table["rank"]) == [1, 2]
    assert table["target"][0] == result.best.target
    best = max(result, key=lambda card: card.score("view_retrieval@backbone").value)
    assert result.best is best
    told = json.loads(result.to_json(tmp_path / "x.json"))
    assert json.loads((tmp_path / "x.json").read_text()) == told
    assert told["leaderboard"]["best"] == best.target
    assert told["leaderboard"]["confirmed"] is False
    page = result.to_html(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == page
    assert "Nearest by a" in page
    assert f"best: {best.target}" in result._repr_html_()
    assert f"best: {best.target}" in str(result)
    with pytest.raises(KeyError, match="no target 'c'; there are 'a', 'b'"):
        result["c"]


def test_what_is_ranked_by_is_computed(pixels) -> None:
    nets, key = {"a": Net(0), "b": Net(1)}, "view_retrieval_recipes"
    result = radial.score(nets, pixels, by=key, repeats=0, cache=False)
    assert result.board.key == f"{key}@backbone"
    assert all(card.score("view_retrieval@backbone") for card in result)


def test_neighbours_are_the_nearest(pixels) -> None:
    card = radial.score(flat, pixels, figures=True, **FEW)[0]
    near = card.figures.neighbours
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x = pixels[order].flatten(1).double() / 255
    x -= x.mean(0)
    cosine = (x[0] @ x.T) / (x.norm(dim=1) * x[0].norm())
    ranked = cosine.argsort(descending=True)
    assert torch.equal(near.queries[0], pixels[order[0]])
    assert near.cosines[0] == pytest.approx(cosine[ranked[1:7]].tolist(), abs=0.02)


def test_labels_are_asked_for_only_to_evaluate(files, pixels) -> None:
    labels = [path.parent.name for path in files]
    settings = {"cache": False, "k": 3}
    by_name = radial.evaluate({"net": Net(), "flat": flat}, pixels, labels, **settings)
    assert len(by_name) == 2
    own = radial.evaluate(Net(), Pictures(files), **settings)
    hugging = radial.evaluate(Net(), of_hugging_face(files), **settings)
    accuracy = by_name["net"]["probes"]["exact"]["accuracy"]
    for one in (own, hugging):
        assert one[0]["probes"]["exact"]["accuracy"] == pytest.approx(accuracy)
    assert [c["name"] for c in by_name[0]["probes"]["exact"]["per_class"]] == ["bottom", "top"]
    table = by_name.to_pandas()
    assert table["target"][0] == by_name.best["target"]
    assert "<table" in by_name.to_html()
    assert json.loads(by_name.to_json())[0]["target"] == "net"
    with pytest.raises(ValueError, match="has no labels"):
        radial.evaluate(Net(), pixels)
    with pytest.raises(ValueError, match="3 labels for"):
        radial.evaluate(Net(), pixels, [0, 1, 0])
    with pytest.raises(ValueError, match="no images to evaluate on"):
        radial.evaluate(Net())


def test_settings_of_0_1_still_work(runs, folder) -> None:
    old = Settings(data=f"folder:{folder}", part="train", images=32, **FEW)
    with pytest.warns(DeprecationWarning, match="give Settings as settings="):
        (card,) = radial.score([str(runs["live"])], old)
    assert card.data["images"] == 32
    with pytest.warns(DeprecationWarning, match="give EvalSettings as settings="):
        found = radial.evaluate(str(runs["live"]), EvalSettings(data=f"folder:{folder}"))
    assert found["target"] == str(runs["live"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: radial.score(Net(), p, data="digits"), "images were given twice"),
        (lambda p: radial.score(Net(), "digits", data="digits"), "images were given twice"),
        (lambda p: radial.score(Net(), p, settings=Settings(data="digits")), "given twice"),
        (lambda p: radial.score(Net(), p, vews=3), "unknown option 'vews'; did you mean 'views'"),
        (lambda p: radial.score(Net(), p.float()), r"must be \(N, 3, H, W\) of uint8, not"),
        (lambda p: radial.score(Net(), [p[0] * 1.0] * 20), "must lie in \\[0, 1\\]"),
        (lambda p: radial.score(Net(), "nowhere/*.jpg"), "no images 'nowhere/\\*.jpg': neither"),
        (lambda p: radial.score(Net(), iter(p)), "a dataset with a length, not"),
        (lambda p: radial.score(Net(), {"train": p, "test": p}), "choose one of 'train', 'test'"),
        (lambda p: radial.score(3, p), "a model is a path or name, a module or function"),
        (lambda p: radial.score([], p), "there are no models"),
        (lambda p: radial.score(nn.Identity(), p), "one row of features an image"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line(call, message, pixels) -> None:
    with pytest.raises(ValueError, match=message) as told:
        call(pixels)
    assert "\n" not in str(told.value)


def test_a_large_dataset_is_not_read_whole(files) -> None:
    read: list[int] = []

    class Long(Pictures):
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> Any:
            read.append(index)
            return super().__getitem__(index % len(self.files))

    card = radial.score(Net(), Long(files), max_images=20, **FEW)[0]
    assert card.data["images"] == 20
    assert len(set(read)) == 20


def test_greys_and_shapes_become_square_and_rgb() -> None:
    grey = torch.arange(24, dtype=torch.uint8).view(1, 1, 4, 6)
    store = given(grey).collection.store
    assert store.shape == (1, 3, 4, 4)
    assert torch.equal(store[0, 2], grey[0, 0, :, 1:5])
    item = given([Image.new("L", (6, 4), 7)]).collection.store
    assert item.read(0, 4).tolist() == np.full((3, 4, 4), 7).tolist()
