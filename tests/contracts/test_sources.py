"""Every source that can be named: built offline, against its own library's answer, in one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import transformers as hf
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models as torchvision_models

from radial.checks import MissingPackage
from radial.scoring.targets import build, find

SIZE = 32
TINY = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": SIZE, "patch_size": 8,
}  # fmt: skip
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "image_size": SIZE}
CONFIGS: dict[str, Callable[[], hf.PretrainedConfig]] = {
    "dinov2": lambda: hf.Dinov2Config(**TINY),
    "dinov2_with_registers": lambda: hf.Dinov2WithRegistersConfig(**TINY),
    "dinov3_vit": lambda: hf.DINOv3ViTConfig(**TINY, num_register_tokens=2),
    "dinov3_convnext": lambda: hf.DINOv3ConvNextConfig(**STAGES),
    "clip_vision_model": lambda: hf.CLIPVisionConfig(**TINY),
    "siglip_vision_model": lambda: hf.SiglipVisionConfig(**TINY),
    "vit": lambda: hf.ViTConfig(**TINY),
    "vit_mae": lambda: hf.ViTMAEConfig(**TINY),
    "vit_msn": lambda: hf.ViTMSNConfig(**TINY),
    "ijepa": lambda: hf.IJepaConfig(**TINY),
    "resnet": lambda: hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "convnextv2": lambda: hf.ConvNextV2Config(**STAGES),
    "swinv2": lambda: hf.Swinv2Config(
        embed_dim=16, depths=[1, 1], num_heads=[1, 2], window_size=4, image_size=SIZE, patch_size=4
    ),
    "aimv2": lambda: hf.Aimv2VisionConfig(**TINY),
}
PROCESSOR = {
    "do_center_crop": True, "crop_size": {"height": SIZE, "width": SIZE},
    "size": {"shortest_edge": 40}, "resample": 3, "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4], "image_processor_type": "BitImageProcessor",
}  # fmt: skip


def images(seed: int = 0) -> Tensor:
    return torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def features(spec: str, **options: str) -> Tensor:
    network = build(find(spec), data_size=SIZE, **options)
    assert not network.backbone.training
    assert network.preprocess.size == SIZE
    found = network.backbone(images())
    assert found.shape[0] == 3
    assert found.dim() == 2
    assert torch.equal(found, network.backbone(images()))  # MAE shuffles where it is not told
    return found


def written(kind: str, folder: Path) -> nn.Module:
    torch.manual_seed(0)
    config = CONFIGS[kind]()
    module = hf.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for value in module.parameters():  # norms and scales that are not 1
            value.add_(0.1 * torch.randn_like(value))
    module.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return module


@torch.no_grad()
def reference(kind: str, module: nn.Module) -> dict[str, Tensor]:
    """What transformers itself gives: by hand, from its tokens and poolers."""
    if kind == "vit_mae":
        module.config.mask_ratio = 0.0
        module.embeddings.config.mask_ratio = 0.0
    found = module(pixel_values=images())
    last, pooled = found.last_hidden_state, getattr(found, "pooler_output", None)
    extra = {"dinov2_with_registers": 5, "dinov3_vit": 3}.get(kind, 1)
    if kind in ("ijepa", "aimv2", "siglip_vision_model", "swinv2"):
        extra = 0
    mean = last.mean((2, 3)) if last.dim() == 4 else last[:, extra:].mean(1)
    known = {"mean": mean}
    if kind.startswith(("dinov2", "vit")) or kind == "dinov3_vit":
        known["cls"] = last[:, 0]
    elif pooled is not None and kind != "ijepa":
        known["pooled"] = pooled.flatten(1)
    return known


@pytest.mark.parametrize("kind", CONFIGS)
def test_transformers(kind: str, tmp_path: Path) -> None:
    module = written(kind, tmp_path / "model")
    expected = reference(kind, module)
    auto = "mean" if kind == "ijepa" else "cls" if "cls" in expected else "pooled"
    spec = str(tmp_path / "model")
    torch.testing.assert_close(features(spec), expected[auto], atol=1e-5, rtol=1e-5)
    for how, value in expected.items():
        found = features(f"hf:{spec}", features=how)
        torch.testing.assert_close(found, value, atol=1e-5, rtol=1e-5)
    for how in {"pooled", "cls", "mean"} - expected.keys():
        with pytest.raises(ValueError, match=f"has no {how} features; features: auto, "):
            features(spec, features=how)
    seen = build(find(spec)).preprocess
    assert (seen.size, seen.crop, seen.interpolation) == (SIZE, 0.8, "bicubic")
    assert (seen.mean, seen.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


def test_a_pooler_that_the_file_lacks_is_no_fault_but_a_missing_block_is(tmp_path: Path) -> None:
    module = written("vit", tmp_path / "model")
    weights = tmp_path / "model/model.safetensors"
    state = {k: v for k, v in module.state_dict().items() if not k.startswith("pooler")}
    save_file(state, weights, {"format": "pt"})
    assert features(str(tmp_path / "model")).shape == (3, 32)
    del state[next(key for key in state if "layer" in key)]
    save_file(state, weights, {"format": "pt"})
    with pytest.raises(ValueError, match="1 tensors are missing"):
        features(str(tmp_path / "model"))


def test_a_tower_of_a_model_of_images_and_texts(tmp_path: Path) -> None:
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
    config = hf.CLIPConfig(vision_config=TINY, text_config=text, projection_dim=8)
    whole = hf.CLIPModel(config).eval()
    whole.save_pretrained(tmp_path / "clip")
    with torch.no_grad():
        expected = whole.vision_model(pixel_values=images()).pooler_output
    torch.testing.assert_close(features(str(tmp_path / "clip")), expected)


def test_timm_from_a_directory(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = timm.create_model("vit_tiny_patch16_224", img_size=SIZE, num_classes=0).eval()
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    record = {
        "architecture": "vit_tiny_patch16_224", "num_classes": 0, "model_args": {"img_size": SIZE},
        "pretrained_cfg": {"input_size": [3, SIZE, SIZE], "mean": [0.5] * 3, "std": [0.25] * 3,
                           "interpolation": "bicubic", "crop_pct": 0.9, "num_classes": 0},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(record))
    with torch.no_grad():
        expected = module(images())
    for spec in (str(tmp_path), f"timm:local-dir:{tmp_path}"):
        torch.testing.assert_close(features(spec), expected)
    seen = build(find(str(tmp_path))).preprocess
    assert (seen.crop, seen.interpolation, seen.mean) == (0.9, "bicubic", (0.5, 0.5, 0.5))


def test_open_clip_from_a_directory(tmp_path: Path) -> None:
    import open_clip

    config = {
        "model_cfg": {
            "embed_dim": 16,
            "vision_cfg": {"image_size": SIZE, "layers": 2, "width": 64, "patch_size": 8},
            "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 64, "heads": 1},
        },
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bicubic"},
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    module = open_clip.CLIP(**config["model_cfg"]).eval()
    save_file(module.state_dict(), tmp_path / "open_clip_model.safetensors")
    with torch.no_grad():
        expected = module.encode_image(images())
    torch.testing.assert_close(features(str(tmp_path)), expected)
    assert build(find(str(tmp_path))).preprocess.mean == (0.5, 0.5, 0.5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().mean((2, 3))


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("batch", [None, 2])
def test_onnx(batch: int | None, tmp_path: Path) -> None:
    module = Net().eval()
    given = torch.zeros(batch or 2, 3, SIZE, SIZE)
    free = {"dynamic_shapes": {"x": {0: torch.export.Dim("batch")}}} if batch is None else {}
    torch.onnx.export(module, (given,), str(tmp_path / "net.onnx"), verbose=False, **free)
    with torch.no_grad():
        expected = module(images())
    found = features(str(tmp_path / "net.onnx"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")  # that TorchScript is deprecated
def test_torchscript_runs_on_its_prefix_alone(tmp_path: Path) -> None:
    module = Net().eval()
    torch.jit.trace(module, images()).save(str(tmp_path / "net.pt"))
    with torch.no_grad():
        expected = module(images())
    torch.testing.assert_close(features(f"torchscript:{tmp_path / 'net.pt'}"), expected)
    with pytest.raises(ValueError, match="is TorchScript, which is a program: torchscript:"):
        find(str(tmp_path / "net.pt"))


def test_a_factory_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "their_models.py").write_text(
        "from torch import nn\n"
        "build = lambda: nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
        "pair = lambda: (build(), lambda picture: None)\n"
        "broken = lambda: 1 / 0\n"
    )
    expected = nn.functional.adaptive_avg_pool2d(images(), 2).flatten(1)
    assert torch.equal(features("py:their_models:build"), expected)
    assert build(find("py:their_models:pair")).preprocess.transform is not None
    for spec, message in (
        ("py:their_models:broken", "failed: ZeroDivisionError: division by zero"),
        ("py:their_models:gone", "failed: AttributeError"),
        ("py:nowhere_at_all:x", "failed: ModuleNotFoundError"),
        ("py:their_models", "must be py:MODULE:FACTORY"),
    ):
        with pytest.raises(ValueError, match=message):
            build(find(spec))


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5"])
def test_torchvision_gives_what_its_last_layer_sees(name: str) -> None:
    network = build(find(f"torchvision:{name}@none"), image_size=64)
    torch.manual_seed(0)
    whole = torchvision_models.get_model(name).eval()
    seen: list[Tensor] = []
    linear = [part for part in whole.modules() if isinstance(part, nn.Linear)]
    if linear:
        linear[-1].register_forward_pre_hook(lambda layer, args: seen.append(args[0]))
    else:
        whole.features.register_forward_hook(lambda *all: seen.append(all[2].mean((2, 3))))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        whole(x)
        torch.testing.assert_close(network.backbone(x), seen[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", torchvision_models.list_models(module=torchvision_models))
def test_every_classifier_of_torchvision(name: str) -> None:
    network = build(find(f"torchvision:{name}@none"), image_size=224)
    with torch.no_grad():
        assert network.backbone(torch.zeros(1, 3, 224, 224)).dim() == 2
    how = torchvision_models.get_model_weights(name).DEFAULT.transforms()
    assert how.crop_size[0] > 0


@pytest.mark.parametrize("kind", ["npy", "npz", "pt", "safetensors", "parquet"])
def test_embeddings(kind: str, tmp_path: Path) -> None:
    flat = torch.randn(20, 6)
    views = torch.randn(20, 4, 6)
    for name, value in (("features", flat), ("views", views)):
        path = tmp_path / f"{name}.{kind}"
        if kind == "npy":
            np.save(path, value.numpy())
        elif kind == "npz":
            np.savez_compressed(path, **{name: value.numpy()}, labels=np.arange(20))
        elif kind == "pt":
            torch.save(value, path)
        elif kind == "safetensors":
            save_file({name: value}, path)
        else:
            import pyarrow
            from pyarrow import parquet

            column = pyarrow.array(value.tolist())
            table = pyarrow.table({"id": list(range(20)), "embedding": column})
            parquet.write_table(table, path)
        target = find(f"mine={path}")
        assert (target.kind, target.name) == ("embeddings", "mine")
        assert torch.equal(getattr(target, name), value)
        with pytest.raises(ValueError, match="holds embeddings, not a network"):
            build(target)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), r"expected \(N, D\) or \(n, q, D\), found its array \(5,\)"),
        (np.zeros((4, 1, 3)), "need at least two an image"),
        (np.full((4, 3), np.nan), "has NaN or inf"),
        (np.array([[{}]], dtype=object), "is damaged or holds no embeddings"),
    ],
)
def test_what_are_no_embeddings(array: np.ndarray, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        find(str(tmp_path / "x.npy"))


@pytest.mark.parametrize(
    ("spec", "package", "extra"),
    [
        ("hf:a/b", "transformers", "hf"), ("openclip:ViT-B-32@x", "open_clip", "clip"),
        ("timm:resnet10t@none", "timm", "timm"), ("{}/net.onnx", "onnxruntime", "onnx"),
        ("{}/x.parquet", "pyarrow", "study"),
    ],
)  # fmt: skip
def test_a_missing_library_is_named_with_its_extra(
    spec: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from radial import checks

    for name in ("net.onnx", "x.parquet"):
        (tmp_path / name).write_bytes(b"x")
    real = checks.find_spec
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == package else real(name))
    message = rf"{package} is not installed: .*radial-ssl\[{extra}\]"
    with pytest.raises(MissingPackage, match=message):
        build(find(spec.format(tmp_path)))
