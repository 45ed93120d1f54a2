"""One call whose table mixes everything that can be named; what is missing costs a line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from foreign_files import LAYOUTS, another, save
from radial.cli import main


def vit() -> VisionTransformer:
    return VisionTransformer(
        img_size=16, patch_size=8, embed_dim=64, depth=1, num_heads=1, num_classes=0
    )


def onnx(path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    options = {"dynamo": False, "dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"]}
    torch.onnx.export(net, (torch.zeros(2, 3, 16, 16),), str(path), **options)


def write_all(folder: Path, run: Path) -> dict[str, str]:
    """A target of every kind of source, by the name it gets in the table."""
    torch.manual_seed(0)
    files = {}
    for number, layout in enumerate(("lightly", "DINO", "MAE", "solo-learn", "I-JEPA", "VISSL")):
        state = vit().state_dict()
        files[layout] = save(LAYOUTS[layout](state, another(state)), folder / f"{number}.pth")
    config = hf.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=8,
    )  # fmt: skip
    hf.AutoModel.from_config(config).save_pretrained(folder / "transformers")
    onnx(folder / "net.onnx")
    torch.jit.trace(nn.Flatten(), torch.zeros(1, 3, 16, 16)).save(str(folder / "net.pt"))
    np.save(folder / "flat.npy", np.random.default_rng(0).normal(size=(40, 8)))
    np.savez(folder / "both.npz", views=np.random.default_rng(1).normal(size=(40, 3, 8)))
    return {
        "run": str(run),
        **{layout: str(path) for layout, path in files.items()},
        "torchvision": "torchvision:squeezenet1_1@none@32px",
        "timm": "timm:vit_tiny_patch16_224@none@16px",
        "ours": "resnet9-w0.0625@none",
        "hf": str(folder / "transformers"),
        "onnx": str(folder / "net.onnx"),
        "torchscript": f"torchscript:{folder / 'net.pt'}",
        "embeddings": str(folder / "flat.npy"),
        "views": str(folder / "both.npz"),
    }


BROKEN = {  # what is missing, and the line that it costs
    "gone": ("nowhere/at/all.pth", "no such target"),
    "text": ("text.pth", "is damaged or no checkpoint"),
    "other": ("other.pth", "no backbone found in it"),
    "unknown": ("timm:vit_tinyy@none", "unknown timm model"),
    "script": ("net.pt", "is TorchScript, which is a program"),
}


@pytest.mark.filterwarnings("ignore")  # of exporters and tracers
def test_one_table_of_all_sources(runs, folder, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = write_all(tmp_path, runs["live"])
    (tmp_path / "text.pth").write_text("no checkpoint")
    torch.save({"encoder.weight": torch.zeros(3, 3)}, tmp_path / "other.pth")
    specs = [f"{name.replace(' ', '')}={spec}" for name, spec in named.items()]
    specs += [f"{name}={spec}" for name, (spec, _) in BROKEN.items()]
    words = ["--data", f"folder:{folder}", "--scores", "rankme,view_retrieval", "--repeats", "0"]
    code = main(["score", *specs, *words, "--json", "cards.json", "--html", "page.html"])
    told = capsys.readouterr()
    assert code == 0, told.err
    cards = {card["target"]: card for card in json.loads(Path("cards.json").read_text())["cards"]}
    works = {}
    for name in named:
        card = cards[name.replace(" ", "")]
        values = {one["name"] for one in card["scores"]}
        works[name] = card["status"]
        expected = {"rankme"} | ({"view_retrieval"} if name != "embeddings" else set())
        assert values == expected, (name, card["reason"])
        if card["kind"] != "embeddings":
            assert card["data"]["sees"]
            assert card["data"]["features"] in ("pooled", "cls", "mean")
    for name, (_, line) in BROKEN.items():
        assert cards[name]["status"] == "broken"
        assert line in cards[name]["reason"]
        assert not cards[name]["scores"]
    assert "view scores need embeddings of views" in " ".join(cards["embeddings"]["warnings"])
    assert Path("page.html").stat().st_size < 5e6
    print("\n".join(f"| {name} | {status} |" for name, status in works.items()))


def test_where_all_fail_the_first_error_is_told(folder, tmp_path: Path, capsys) -> None:
    code = main(["score", str(tmp_path / "a.pth"), "timm:xx@none", "--data", f"folder:{folder}"])
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert told.err.count("\n") == 1
    assert "no such target" in told.err
