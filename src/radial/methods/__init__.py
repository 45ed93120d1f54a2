"""Nine self-supervised methods, each in a file of its own, two supervised anchors; the registry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from radial.methods.anchors import CrossEntropy, SupCon
from radial.methods.barlow_twins import BarlowTwins
from radial.methods.base import Method, Output
from radial.methods.byol import BYOL
from radial.methods.dino import DINO
from radial.methods.moco import MoCo
from radial.methods.nnclr import NNCLR
from radial.methods.simclr import SimCLR
from radial.methods.simsiam import SimSiam
from radial.methods.swav import SwAV
from radial.methods.vicreg import VICReg

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        method.name: method
        for method in (
            SimCLR, MoCo, BYOL, SwAV, SimSiam, BarlowTwins, VICReg, DINO, NNCLR,
            CrossEntropy, SupCon,
        )
    }
)  # fmt: skip

__all__ = [
    "BYOL",
    "DINO",
    "METHODS",
    "NNCLR",
    "BarlowTwins",
    "CrossEntropy",
    "Method",
    "MoCo",
    "Output",
    "SimCLR",
    "SimSiam",
    "SupCon",
    "SwAV",
    "VICReg",
]
