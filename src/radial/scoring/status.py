"""What is wrong with a target, and which of its scores should not be read as they stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from radial import verdicts
from radial.evaluation.features import Layers
from radial.metrics.scores import Score
from radial.metrics.spectra import rankme_centred
from radial.rbf.health import diagnose
from radial.scoring.card import Card
from radial.scoring.targets import Network, Target

SUPERVISED = ("supervised", "supcon")  # methods that see labels
RETRIEVAL = (
    "view_retrieval", "view_retrieval_recipes", "view_retrieval_plain", "view_retrieval_top1",
    "acr", "kernel_retrieval",
)  # fmt: skip
SATURATED = "nearly all views find their image; use"


def verdict_on(target: Target, network: Network, plain: Layers) -> tuple[str, str]:
    """Status and reason: what the images show, then what the training said, then the weights."""
    if network.projection_head is not None:
        report = diagnose(network.projection_head, plain.backbone)
        born = target.facts.get("head_status", "unknown")
        if report.status == verdicts.BROKEN:
            return verdicts.BROKEN, report.verdict
        flat = report.effective_rank < verdicts.RANK
        silent = flat or verdicts.same_direction(math.sqrt(report.relative_variance))
        if report.status in verdicts.BORN_DEAD and silent:
            if born == verdicts.ALIVE:  # it fell during training: calibrating would not help
                return verdicts.COLLAPSED, f"alive at the start, now {report.verdict.split(';')[0]}"
            return verdicts.DEAD_HEAD, report.verdict.removeprefix("dead: ")
        if report.status == verdicts.DEAD and born not in verdicts.BORN_DEAD:
            # a residual path carries the rest
            return verdicts.DEAD_KERNELS, report.verdict.removeprefix("dead: ").split(";")[0]
    if fallen := collapsed(plain):
        return verdicts.COLLAPSED, fallen
    if target.verdict not in ("", verdicts.OK):
        return said_by_training(target)
    if network.random or untrained(network.backbone):
        return verdicts.UNTRAINED, "random weights"
    return verdicts.OK, ""


def collapsed(plain: Layers) -> str:
    """What says that features of images are all alike, or on a line; nothing where they are not."""
    for name, features in (("backbone", plain.backbone), ("projector", plain.projector)):
        if features is None:
            continue
        unit = F.normalize(features.double(), dim=1)
        variance = max(0.0, 1.0 - float(unit.mean(0).square().sum()))
        if verdicts.same_direction(math.sqrt(variance)):
            return f"all {name} outputs point the same way (variance {variance:.1g})"
        rank = rankme_centred(features)
        if verdicts.on_a_line(rank, min(len(features) - 1, features.shape[1])):
            return f"{name} outputs have effective rank {rank:.2f}"
    return ""


def untrained(backbone: nn.Module) -> bool:
    """Whether BatchNorm's statistics are those of its making; without it nothing can be told."""
    means = [
        module.running_mean
        for module in backbone.modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
    return bool(means) and not any(bool(mean.any()) for mean in means)


def with_labels(target: Target, network: Network) -> bool:
    """Whether a network was trained with labels, as far as its source tells.

    torchvision's weights are those of classifiers; of timm's its record says how many classes a
    network was made for, none where it was trained without.
    """
    if network.random:
        return False
    told = getattr(network.backbone, "pretrained_cfg", None) or {}
    named = target.spec.startswith("torchvision:") and target.kind == "model"
    return target.method in SUPERVISED or named or bool(told.get("num_classes"))


def said_by_training(target: Target) -> tuple[str, str]:
    """Status and reason where the run's own guards found something."""
    if target.verdict and target.verdict != verdicts.OK:
        status = verdicts.BROKEN if target.verdict == verdicts.DIVERGED else target.verdict
        return status, f"during training: {target.reason}"
    if not target.verdict and target.facts.get("head_status") in verdicts.BORN_DEAD:
        return verdicts.DEAD_HEAD, f"before the first step: {target.facts['head_health']}"
    return "", ""


def far_apart(target: Target) -> str:
    """A reason, where kernels of a Gaussian head can reach neither each other nor the images."""
    config = target.facts.get("config", {})
    if config.get("radial_function", "gaussian") != "gaussian" or config.get("normalize"):
        return ""
    assert target.kernels is not None
    centers = target.kernels.centers[:512].double()
    power = 1.0 if config.get("distance") == "manhattan" else 2.0
    apart = torch.pdist(centers, power).median() if len(centers) > 1 else torch.zeros(())
    scaled = float(apart * target.kernels.shapes.double().median())
    if scaled < verdicts.DEAD_BEYOND:
        return ""
    kind = "a Gaussian kernel gives" if config else "if the kernels are Gaussian, they give"
    return f"ε‖c_i−c_j‖ ≈ {scaled:.3g}: {kind} exactly 0 there"


def annotated(scores: Sequence[Score], target: Target, status: str) -> tuple[Score, ...]:
    """Kernel scores with their value at the start, and with what speaks against them."""
    starts = target.facts.get("kernels_at_start") or {}
    found = []
    for one in scores:
        start = starts.get(one.name)
        if one.layer == "kernels" and status == verdicts.DEAD_HEAD:
            one = warn(one, "the head is dead: this is the value of its initialisation")
        elif one.layer == "kernels" and start is not None:
            one = replace(one, start=start)
            if abs(one.value - start) <= verdicts.UNMOVED * max(abs(start), 1e-12):
                one = warn(one, "the same as before the first step")
        found_again = 1.0 - one.value if one.name == "acr" else one.value
        if one.name in RETRIEVAL and verdicts.no_room(found_again):
            stronger = "" if one.name == "view_retrieval_recipes" else "--augment strong, or "
            advice = f"{SATURATED} {stronger}info_nce beside it"
            one = warn(one, f"no room left ({found_again:.3f}): {advice}")
        if one.name == "sns_paper" and one.value < 1e-12 and status != verdicts.DEAD_HEAD:
            one = warn(one, "underflows on a head that is alive: use sns_width")
        found.append(one)
    return tuple(found)


def across(cards: list[Card]) -> list[Card]:
    """Warn where a score does not compare the targets of one table."""
    methods = sorted({card.method or "unknown" for card in cards})
    if len(cards) < 2 or (len(methods) == 1 and methods != ["unknown"]):
        return cards
    line = f"compares runs of one method only; here: {', '.join(methods)}"
    return [
        replace(
            card,
            scores=tuple(
                warn(score, line) if score.name.startswith("rankme") else score
                for score in card.scores
            ),
        )
        for card in cards
    ]


def warn(score: Score, line: str) -> Score:
    return replace(score, warning="; ".join(filter(None, [score.warning, line])))
