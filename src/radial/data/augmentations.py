"""The views of each method, as its paper has them and as used here on small images. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

SMALL = 64  # px; below it the small-image settings of a recipe hold


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The distribution of one view: output side, crop, and the strength and chance of the rest.

    A factor is uniform in [max(0, 1 − strength), 1 + strength], the hue shift in [−hue, hue] turns;
    `scale` is the share of the area that is cropped; `flip`, `jitter`, `grey`, `blur`, `solarise`
    are probabilities; `sigma` is the blur's standard deviation in pixels of the view.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float
    contrast: float
    saturation: float
    hue: float
    grey: float = 0.2
    blur: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    solarise: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1 pixel")
        for name in ("flip", "jitter", "grey", "blur", "solarise"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be a probability in [0, 1]")
        for name in ("brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be finite and at least 0")
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"hue={self.hue} must be in [0, 0.5] turns")
        for name, most in (("scale", 1.0), ("ratio", math.inf), ("sigma", math.inf)):
            low, high = getattr(self, name)
            if not (0 < low <= high <= most and high < math.inf):
                raise ValueError(f"{name}={(low, high)} must hold 0 < low ≤ high ≤ {most}")

    def at(self, size: int) -> View:
        """The same view for a network that sees `size` px: its blur grows with the side."""
        ratio = size / self.size
        return replace(self, size=size, sigma=(self.sigma[0] * ratio, self.sigma[1] * ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A method's views as published, for 224 px, and as used here on small images, for 32 px."""

    published: tuple[View, ...]
    small: tuple[View, ...]


def _simclr(size: int = 224, strength: float = 1.0, **others: object) -> View:
    colours = {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2}
    scaled = {name: strength * value for name, value in colours.items()}
    return View(size=size, **(scaled | others))  # type: ignore[arg-type]


_MOCO = View(
    size=224, scale=(0.2, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=0.5
)
_BYOL = View(size=224, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, blur=1.0)
_BYOL_PAIR = (_BYOL, replace(_BYOL, blur=0.1, solarise=0.2))
_VICREG = replace(_BYOL, blur=0.5, solarise=0.1)


def _shrunk(*views: View) -> tuple[View, ...]:
    """Without blur and with crops of at least a fifth of the area; colours as they are."""
    return tuple(replace(v, size=32, scale=(max(0.2, v.scale[0]), 1.0), blur=0.0) for v in views)


RECIPES: dict[str, Recipe] = {
    "simclr": Recipe(published=2 * (_simclr(),), small=2 * _shrunk(_simclr(strength=0.5))),
    "moco": Recipe(published=(_MOCO, _MOCO), small=_shrunk(_MOCO, _MOCO)),
    "byol": Recipe(published=_BYOL_PAIR, small=_shrunk(*_BYOL_PAIR)),
    "swav": Recipe(
        published=2 * (_simclr(scale=(0.14, 1.0)),) + 6 * (_simclr(96, scale=(0.05, 0.14)),),
        small=2 * (_simclr(32, 0.5, scale=(0.3, 1.0), blur=0.0),)
        + 4 * (_simclr(16, 0.5, scale=(0.1, 0.3), blur=0.0),),
    ),
    "simsiam": Recipe(published=(_MOCO, _MOCO), small=_shrunk(_MOCO, _MOCO)),
    "barlow_twins": Recipe(published=_BYOL_PAIR, small=_shrunk(*_BYOL_PAIR)),
    "vicreg": Recipe(published=(_VICREG, _VICREG), small=_shrunk(_VICREG, _VICREG)),
    "dino": Recipe(
        published=(
            *(replace(view, scale=(0.4, 1.0)) for view in _BYOL_PAIR),
            *8 * (replace(_BYOL, size=96, scale=(0.05, 0.4), blur=0.5),),
        ),
        small=(
            *(replace(view, size=32, scale=(0.3, 1.0), blur=0.0) for view in _BYOL_PAIR),
            *4 * (replace(_BYOL, size=16, scale=(0.1, 0.3), blur=0.0),),
        ),
    ),
    **dict.fromkeys(
        ("nnclr", "supervised", "supcon"),
        Recipe(published=2 * (_simclr(),), small=2 * _shrunk(_simclr(strength=0.5))),
    ),
}


def recipe(method: str, size: int) -> tuple[View, ...]:
    """The views of a method for images of `size` px, from its paper (MoCo: v2).

    BYOL and Barlow Twins have two different views, blurred with probability 1 and 0.1, solarised
    with 0 and 0.2; VICReg (the paper's appendix) is alike in both, 0.5 and 0.1. SwAV has 2 crops of
    `size` and 6 of 96/224 `size`, DINO BYOL's two and 8 of 96/224 `size`; every side scales with
    `size`. NNCLR and the supervised anchors take SimCLR's.

    Below 64 px there is no blur, crops hold at least a fifth of the area, and colours of SimCLR's
    strength (SimCLR, SwAV, NNCLR) are halved, as SimCLR does on CIFAR-10; solarisation stays. SwAV
    and DINO then have 2 crops of `size` with 0.3 to 1 of the area and 4 of half the side with 0.1
    to 0.3. The crops of a fifth and the small crops are choices made here, not in the papers.

    >>> [(view.size, view.scale) for view in recipe("moco", 32)]
    [(32, (0.2, 1.0)), (32, (0.2, 1.0))]
    """
    if method not in RECIPES:
        raise ValueError(f"method={method!r} is not one of {sorted(RECIPES)}")
    if size < 2:
        raise ValueError(f"size={size} must be at least 2 pixels")
    chosen = RECIPES[method]
    views, side = (chosen.small, 32) if size < SMALL else (chosen.published, 224)
    return tuple(replace(view, size=max(1, round(view.size * size / side))) for view in views)


FIXED_VIEWS = ("fixed", "crop", "strong")  # the same for every network that is scored


def scoring_view(name: str, size: int) -> View:
    """The view by which networks are scored, the same for all of them.

    - fixed: SimCLR's, for images of `size` px;
    - crop: its crops and flips, no colour: what differs between runs there is not colour;
    - strong: colours of one and a half its strength, always drawn, and crops from half its least
      area on.

    >>> scoring_view("crop", 32).jitter, scoring_view("strong", 32).scale
    (0.0, (0.1, 1.0))
    """
    if name not in FIXED_VIEWS:
        raise ValueError(f"view={name!r} is not one of {list(FIXED_VIEWS)}")
    fixed = recipe("simclr", size)[0]
    if name == "crop":
        return replace(fixed, jitter=0.0, grey=0.0, blur=0.0)
    if name == "strong":
        return replace(
            fixed,
            scale=(fixed.scale[0] / 2, 1.0),
            jitter=1.0,
            brightness=1.5 * fixed.brightness,
            contrast=1.5 * fixed.contrast,
            saturation=1.5 * fixed.saturation,
            hue=min(0.5, 1.5 * fixed.hue),
        )
    return fixed


def view_words(view: View) -> str:
    """What tells one distribution of views from another, in few words.

    >>> view_words(recipe("moco", 32)[0])
    '32 px, crops 0.2–1, colour 0.8 × 0.4/0.4/0.4/0.1, grey 0.2, blur 0, solarise 0'
    """
    colours = (view.brightness, view.contrast, view.saturation, view.hue)
    strengths = "/".join(f"{value:g}" for value in colours)
    crops = f"{view.scale[0]:g}–{view.scale[1]:g}"
    rest = f"grey {view.grey:g}, blur {view.blur:g}, solarise {view.solarise:g}"
    return f"{view.size} px, crops {crops}, colour {view.jitter:g} × {strengths}, {rest}"
