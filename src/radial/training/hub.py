"""A run as a folder that travels: weights, configuration, preprocessing and a model card.

The layout is that of the Hugging Face hub: ``huggingface-cli upload NAME DIR`` publishes it. timm
reads it where it knows the architecture (``timm.create_model("local-dir:DIR", pretrained=True)``);
radial always does (``radial score DIR/model.safetensors``).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import radial
from radial.files import write_json
from radial.training.rundir import ENVIRONMENT, EVALUATION, PACKAGES, RESULT, SCORES, export

WEIGHTS, HEAD, CARD = "model.safetensors", "projection_head.safetensors", "README.md"
BILINEAR = 2  # of Pillow, as transformers counts


def export_folder(run: Path | str, folder: Path | str, *, licence: str = "other") -> list[str]:
    """Write a run as a model folder; all of it, or nothing.

    Args:
        run: directory of a run, or one of its checkpoints.
        folder: to be made; it must not exist, or be empty.
        licence: the hub's short name, such as "apache-2.0": yours to choose, and the data's.

    Returns:
        A line for each file, and who can load it.

    Raises:
        ValueError: no run, or a folder that holds something.

    Example:
        >>> export_folder("runs/first", "first-hf", licence="apache-2.0")  # doctest: +SKIP
    """
    folder, run = Path(folder), Path(run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there already: remove it, or choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        export(run, backbone=beside / WEIGHTS, head=beside / HEAD)
        facts = _header(beside / WEIGHTS)
        timm = timm_model(facts["name"], int(facts["image_size"]), facts["stem"])
        write_json(beside / "config.json", _config(facts, timm))
        write_json(beside / "preprocessor_config.json", _preprocessor(facts))
        told = _told(run if run.is_dir() else run.parent)
        text = _card(facts, told, timm, licence)
        (beside / CARD).write_text(text, encoding="utf-8")
        files = sorted(path.name for path in beside.iterdir())
        beside.chmod(0o755)  # mkdtemp's is of one user alone
        if folder.exists():
            folder.rmdir()
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    reader = "timm and radial" if timm else "radial"
    return [f"{folder}: {', '.join(files)}", f"loads by {reader}; see {folder / CARD}"]


def timm_model(name: str, image_size: int, stem: str) -> tuple[str, dict[str, Any]] | None:
    """The architecture by which timm builds a backbone, with its arguments; None where it cannot.

    timm's ResNets have torchvision's keys, but no stem for small images; lightly's narrow ones are
    not among them.
    """
    from radial.backbones import IMAGENET_STEM, TORCHVISION, VITS

    if name.startswith("timm:"):
        from radial.backbones import build_backbone

        module, _ = build_backbone(name, image_size=image_size)  # with img_size where it takes one
        sized = hasattr(module, "patch_embed") and hasattr(module.patch_embed, "img_size")
        return name.removeprefix("timm:"), {"img_size": image_size} if sized else {}
    if vit := re.fullmatch(r"vit-(\w+)-p(\d+)", name):
        width, depth, heads = VITS[vit[1]]
        sizes = {"img_size": image_size, "patch_size": int(vit[2]), "dynamic_img_size": True}
        return "vit_tiny_patch16_224", sizes | {
            "embed_dim": width, "depth": depth, "num_heads": heads,
        }  # fmt: skip
    return (name, {}) if name in TORCHVISION and stem == IMAGENET_STEM else None


def _header(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return dict(file.metadata())


def _config(facts: Mapping[str, str], timm: tuple[str, dict[str, Any]] | None) -> dict[str, Any]:
    size, mean, std = int(facts["image_size"]), json.loads(facts["mean"]), json.loads(facts["std"])
    own = {name: facts[name] for name in ("name", "stem", "method", "head", "data")}
    config: dict[str, Any] = {"num_features": int(facts["feature_dim"]), "num_classes": 0}
    if timm:
        architecture, arguments = timm
        config |= {"architecture": architecture, "model_args": arguments}
        config["pretrained_cfg"] = {
            "input_size": [3, size, size], "fixed_input_size": "img_size" in arguments,
            "interpolation": "bilinear", "crop_pct": 1.0, "mean": mean, "std": std,
            "num_classes": 0, "custom_load": False,
        }  # fmt: skip
    return config | {"radial": own | {"image_size": size, "version": radial.__version__}}


def _preprocessor(facts: Mapping[str, str]) -> dict[str, Any]:
    """The central square, resized, scaled and standardised: what `radial.data` does."""
    size = int(facts["image_size"])
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True, "size": {"shortest_edge": size}, "resample": BILINEAR,
        "do_center_crop": True, "crop_size": {"height": size, "width": size},
        "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": json.loads(facts["mean"]), "image_std": json.loads(facts["std"]),
    }  # fmt: skip


def _told(directory: Path) -> dict[str, Any]:
    """What the directory of a run says of it, as far as it is there."""
    found = {}
    for name in (RESULT, SCORES, EVALUATION, ENVIRONMENT):
        path = directory / name
        if path.is_file():
            found[name] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _card(
    facts: Mapping[str, str],
    told: Mapping[str, Any],
    timm: tuple[str, dict[str, Any]] | None,
    licence: str,
) -> str:
    result, evaluation = told.get(RESULT, {}), told.get(EVALUATION, {})
    verdict = result.get("verdict", "not finished")
    reason = f": {result['reason']}" if result.get("reason") else ""
    rows = [
        ("architecture", f"{facts['name']} ({facts['stem']}), {facts['feature_dim']} features"),
        ("method", facts["method"]),
        ("projection head", f"{facts['head']} ({HEAD})"),
        (
            "data",
            f"{facts['data']}, {result.get('images', '?')} images at {facts['image_size']} px",
        ),
        ("epochs", result.get("epochs", "?")),
        ("seed", result.get("seed", "?")),
        ("verdict", f"{verdict}{reason}"),
    ]
    tags = ["image-feature-extraction", "self-supervised-learning", "radial-ssl", facts["method"]]
    front = [
        "---",
        f"license: {licence}",
        f"library_name: {'timm' if timm else 'radial-ssl'}",
        "pipeline_tag: image-feature-extraction",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "---",
    ]
    loading = [
        "```python",
        *(["import timm", "", 'model = timm.create_model("local-dir:DIR", pretrained=True)'] if timm
          else []),
        *(["", "# or by radial"] if timm else []),
        "from radial.backbones import load_backbone",
        "",
        f'model, facts = load_backbone("DIR/{WEIGHTS}")',
        "```",
        "",
        "Mean and std of the pixels are in `preprocessor_config.json`; the kernels of an RBFN head",
        f'are read by `radial.load_kernels("DIR/{HEAD}")`.',
    ]  # fmt: skip
    return "\n".join([
        *front, "", f"# {facts['name']}, {facts['method']} on {facts['data']}", "",
        "Trained without labels by [radial-ssl](https://pypi.org/project/radial-ssl/).", "",
        "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), "",
        "## Scores without labels", "", *_scores(told.get(SCORES)), "",
        "## Accuracy with labels", "", *_accuracies(evaluation), "",
        "## Load it", "", *loading, "",
        "## Versions", "", *_versions(told.get(ENVIRONMENT, {})), "",
    ])  # fmt: skip


def _scores(card: Any) -> list[str]:
    if not card or not card.get("scores"):
        return ["Not measured: `radial score RUN --data DATA` before the export writes them here."]
    lines = ["95 % intervals over images, not over training seeds.", "",
             "| score | value | interval | better | remark |", "|---|---|---|---|---|"]  # fmt: skip
    for score in card["scores"]:
        low, high = score["low"], score["high"]
        interval = "–" if low is None or high is None else f"{low:.4g} to {high:.4g}"
        value = "–" if score["value"] is None else f"{score['value']:.4g}"
        name = f"{score['name']}@{score['layer']}"
        lines.append(f"| {name} | {value} | {interval} | {score['better']} | {score['warning']} |")
    return lines


def _accuracies(evaluation: Mapping[str, Any]) -> list[str]:
    if not evaluation:
        return ["Not measured: `radial eval RUN --data DATA` before the export writes it here."]
    lines = [f"On {evaluation['data']['data']}, {evaluation['data']['split']}:", ""]
    for protocol, probe in evaluation["probes"].items():
        interval = f"{probe['low']:.1%} to {probe['high']:.1%}"
        lines.append(f"- {protocol} probe: {probe['accuracy']:.1%} ({interval})")
    return [*lines, f"- nearest neighbours: {evaluation['knn']['accuracy']:.1%}"]


def _versions(environment: Mapping[str, Any]) -> list[str]:
    listed = {"radial": radial.__version__} | {
        name: environment[name] for name in ("radial", "python", *PACKAGES) if name in environment
    }
    return [", ".join(f"{name} {version}" for name, version in listed.items())]
