"""The registry of label-free scores: what each needs, which way is better, with which settings.

Every score is a plain function of another file of this package, found when it is called: names,
directions and words are known without torch. The settings are fixed here
before any accuracy is looked at; but for the kinds of retrieval, which were chosen by accuracy on
runs of 16 px and tested on others (docs/FINDINGS.md).

Legend: N images, n images with q views each, D features, K kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from radial.checks import check_choice

if TYPE_CHECKING:
    from radial.metrics.compute import Sample

LAYERS = ("kernels", "backbone", "projector")
ARROWS = {  # which way is better: a sign, and words
    "higher": ("↑", "higher is better"),
    "lower": ("↓", "lower is better"),
    "near 1": ("≈1", "nearer to 1 is better"),
    "none": ("·", "describes, does not rank"),
}
LEAST_IMAGES = 16  # no score is read off fewer
# What targets are ranked by, and a study's headline: declared by the findings, before any of its
# accuracies is looked at; the first that there is.
HEADLINES = (
    "view_retrieval@backbone", "kernel_retrieval@kernels", "lidar@projector", "lidar@backbone",
    "rankme@projector", "rankme@backbone", "sns_width@kernels",
)  # fmt: skip
LIDAR_DELTA = 1e-4  # as in the paper; added to the within-image covariance
PAIRS_IMAGES = 4096  # at most: all their pairs are looked at
RETRIEVAL_IMAGES = 512  # at most: similarities of all their views are looked at
RETRIEVAL_SHRINKAGE = 0.1  # of the covariance towards a multiple of the identity
INFO_NCE_TEMPERATURE = 0.2  # the same for every run, whatever it was trained with
ROTATION_IMAGES = 512  # at most: each is looked at in four turns
ROTATION_VARIANCE = 10.0  # C·D of the regression, the prior variance of a logit
# What needs a gallery of views: its value depends on how many there are and how they were drawn.
FROM_VIEWS = ("views", "recipes", "start_views", "nearest", "activations", "distances")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreInfo:
    """A score of the registry.

    Attributes:
        name: by which it is asked for.
        description: in one line.
        needs: what it is computed from: kernels, features, views, nearest and so on.
        layer: where it is read unless told otherwise.
        better: higher, lower or near 1.
        settings: centring, epsilon and so on, in words.
        reference: whose it is.
        at_most: images, of those there are.
    """

    name: str
    description: str
    needs: str
    layer: str
    better: str
    settings: str
    reference: str
    at_most: int | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """Where it can be read."""
        if self.needs == "start_views":
            return ("backbone",)  # a head is calibrated on data before its first step
        images = ("features", "views", "recipes", "rotations")
        return LAYERS[1:] if self.needs in images else LAYERS[:1]

    @property
    def from_views(self) -> bool:
        """Whether its value depends on how many views there are and how they were drawn."""
        return self.needs in FROM_VIEWS

    def fn(self, sample: Sample) -> float:
        """The score of what a layer gave; only here is torch loaded.

        Args:
            sample: features, views, kernels: what the score needs.

        Returns:
            The score.
        """
        from radial.metrics.compute import COMPUTE

        return COMPUTE[self.name](sample)


_SNS = "Schliebitz et al., RBFN projection heads"
_OURS = "of this project"
_CHOSEN = "of this project, chosen on SimCLR and BYOL: docs/FINDINGS.md"
_CHALLENGER = "of this project, chosen on five methods at 16 px: docs/FINDINGS.md"
_RETRIEVAL = (
    f"whitened, shrinkage {RETRIEVAL_SHRINKAGE:g}, mean log rank, at most {RETRIEVAL_IMAGES} images"
)
_FEW = f"at most {RETRIEVAL_IMAGES} images"
_MANY = f"at most {PAIRS_IMAGES:,} images"
_CHAOS = "Wang et al., 2022, https://arxiv.org/abs/2203.13457"
_GARC = "Zhang, Wang, Wang, 2025, https://arxiv.org/abs/2511.03114"
_INFO_NCE = "van den Oord et al., 2018, https://arxiv.org/abs/1807.03748"
_ALPHA_REQ = "Agrawal et al., 2022, https://arxiv.org/abs/2202.05808"
_UNIFORMITY = "Wang & Isola, 2020, https://arxiv.org/abs/2005.10242"


def _entry(name: str, description: str, **facts: Any) -> ScoreInfo:
    return ScoreInfo(name=name, description=description, **facts)


_ENTRIES = (
    _entry(
        "sns_paper",
        "separation of kernels as published, shapes used as if they were widths",
        needs="kernels", layer="kernels", better="higher",
        settings="δ = ‖c_i−c_j‖/(√D √(ε_i²+ε_j²+1e-8))", reference=_SNS,
    ),
    _entry(
        "sns_width",
        "separation of kernels with widths: the same for every form of one function",
        needs="kernels", layer="kernels", better="higher",
        settings="δ with σ = 1/(√2 ε) for ε", reference=_SNS,
    ),
    _entry(
        "sns_width_raw",
        "the same without √D; starts near its maximum 1/e on a calibrated head",
        needs="kernels", layer="kernels", better="higher",
        settings="δ with σ for ε, without √D", reference=_SNS,
    ),
    _entry(
        "center_spread",
        "root mean square deviation of the centres",
        needs="kernels", layer="kernels", better="higher",
        settings="per coordinate", reference=_OURS,
    ),
    _entry(
        "center_rank",
        "effective rank of the centres",
        needs="kernels", layer="kernels", better="higher",
        settings="centred", reference=_OURS,
    ),
    _entry(
        "kernel_occupancy",
        "entropy of the nearest kernel over images: how many kernels are in use",
        needs="nearest", layer="kernels", better="higher",
        settings="nearest in ε‖x−c‖, over ln K", reference=_OURS,
    ),
    _entry(
        "kernel_information",
        "mutual information between the nearest kernels of two views, beyond chance",
        needs="nearest", layer="kernels", better="higher",
        settings="nats, expected value under chance subtracted", reference=_OURS,
    ),
    _entry(
        "kernel_agreement",
        "how often two views of an image share their nearest kernel, beyond chance",
        needs="nearest", layer="kernels", better="higher",
        settings="Scott's π", reference=_OURS,
    ),
    _entry(
        "kernel_rank",
        "effective rank of the kernels' activations",
        needs="activations", layer="kernels", better="higher",
        settings="all views, standardised for each kernel, ε 1e-7", reference=_OURS,
    ),
    _entry(
        "kernel_lidar",
        "LiDAR of the kernels' activations",
        needs="activations", layer="kernels", better="higher",
        settings=f"standardised for each kernel, δ {LIDAR_DELTA:g}, ε 1e-7", reference=_OURS,
    ),
    _entry(
        "kernel_retrieval",
        "do the views of an image find each other by their distances to the kernels",
        needs="distances", layer="kernels", better="higher",
        settings=_RETRIEVAL, reference=_CHOSEN, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "rankme",
        "effective rank by singular values; compares runs of one method only",
        needs="features", layer="projector", better="higher",
        settings="uncentred, ε 1e-7", reference="Garrido et al., 2023, https://arxiv.org/abs/2210.02885",
    ),
    _entry(
        "rankme_centred",
        "the same without the mean direction",
        needs="features", layer="projector", better="higher",
        settings="centred, ε 1e-7", reference=_OURS,
    ),
    _entry(
        "lidar",
        "effective rank of what tells images apart beyond their views",
        needs="views", layer="projector", better="higher",
        settings=f"δ {LIDAR_DELTA:g}, ε 1e-7",
        reference="Thilak et al., 2023, https://arxiv.org/abs/2312.04000",
    ),
    _entry(
        "view_retrieval",
        "do the views of an image find each other among those of all images",
        needs="views", layer="backbone", better="higher",
        settings=_RETRIEVAL, reference=_CHOSEN, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "view_retrieval_recipes",
        "view_retrieval, mean over three recipes of views: fixed, crop and strong",
        needs="recipes", layer="backbone", better="higher",
        settings=_RETRIEVAL, reference=_CHALLENGER, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "view_retrieval_plain",
        "view_retrieval without whitening",
        needs="views", layer="backbone", better="higher",
        settings=f"unit length, mean log rank, {_FEW}", reference=_OURS, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "view_retrieval_top1",
        "how often the nearest view is of the same image, whitened; 1 − acr is the plain one",
        needs="views", layer="backbone", better="higher",
        settings=f"whitened, shrinkage {RETRIEVAL_SHRINKAGE:g}, nearest neighbour, {_FEW}",
        reference=_OURS, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "acr",
        "average confusion ratio: how often the nearest view is of another image",
        needs="views", layer="backbone", better="lower",
        settings=f"unit length, nearest neighbour, ties are confusion, {_FEW}",
        reference=_CHAOS, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "arc",
        "1 − acr over that of the network before its first step, where that is known",
        needs="start_views", layer="backbone", better="higher",
        settings=f"as acr, for both, {_FEW}", reference=_CHAOS, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "garc_mean",
        "arc with the mean distance to the views of an image; by their min it is arc",
        needs="start_views", layer="backbone", better="higher",
        settings=f"unit length, {_FEW}", reference=_GARC, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "garc_max",
        "arc with the largest distance to the views of an image",
        needs="start_views", layer="backbone", better="higher",
        settings=f"unit length, {_FEW}", reference=_GARC, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "info_nce",
        "held-out InfoNCE of the same views: retrieval that does not saturate",
        needs="views", layer="backbone", better="lower",
        settings=f"unit length, τ {INFO_NCE_TEMPERATURE:g}, {_FEW}",
        reference=_INFO_NCE, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "info_nce_whitened",
        "the same after the whitening of view_retrieval",
        needs="views", layer="backbone", better="lower",
        settings=f"whitened, shrinkage {RETRIEVAL_SHRINKAGE:g}, τ {INFO_NCE_TEMPERATURE:g}, {_FEW}",
        reference=_INFO_NCE, at_most=RETRIEVAL_IMAGES,
    ),
    _entry(
        "rotation_probe",
        "accuracy of a logistic regression that predicts by which quarter an image was turned",
        needs="rotations", layer="backbone", better="higher",
        settings=f"halves of at most {ROTATION_IMAGES} images, standardised, C·D "
        f"{ROTATION_VARIANCE:g}",
        reference="Reed et al., 2021, https://arxiv.org/abs/2009.07724", at_most=ROTATION_IMAGES,
    ),
    _entry(
        "alpha_req",
        "decay of the spectrum; not monotone, never to be maximised",
        needs="features", layer="backbone", better="near 1",
        settings="centred, ranks weighted 1/rank", reference=_ALPHA_REQ,
    ),
    _entry(
        "nesum",
        "sum of the eigenvalues over the largest",
        needs="features", layer="backbone", better="higher",
        settings="centred", reference="He & Ozay, 2022",
    ),
    _entry(
        "stable_rank",
        "squared Frobenius norm over the largest squared singular value",
        needs="features", layer="backbone", better="higher",
        settings="uncentred", reference="Tsitsulin et al., 2023, https://arxiv.org/abs/2305.16562",
    ),
    _entry(
        "participation_ratio",
        "(Σλ)² / Σλ²",
        needs="features", layer="backbone", better="higher",
        settings="centred", reference="Gao et al., 2017, https://doi.org/10.1101/214262",
    ),
    _entry(
        "decorrelation",
        "mean squared correlation of two features; confounded where a method optimises it",
        needs="features", layer="backbone", better="lower",
        settings="centred", reference="Zbontar et al., 2021, https://arxiv.org/abs/2103.03230",
    ),
    _entry(
        "alignment",
        "mean squared distance of two views of an image",
        needs="views", layer="projector", better="lower",
        settings="unit length", reference=_UNIFORMITY,
    ),
    _entry(
        "uniformity",
        "log mean Gaussian potential of all pairs",
        needs="features", layer="projector", better="lower",
        settings=f"unit length, t 2, {_MANY}", reference=_UNIFORMITY, at_most=PAIRS_IMAGES,
    ),
    _entry(
        "w2_uniformity",
        "Wasserstein distance to an isotropic Gaussian",
        needs="features", layer="projector", better="lower",
        settings="unit length", reference="Fang et al., 2024, https://arxiv.org/abs/2403.00642",
    ),
    _entry(
        "self_cluster",
        "squared cosines of all pairs, 0 at random and 1 where all are alike",
        needs="features", layer="backbone", better="lower",
        settings="unit length", reference="Tsitsulin et al., 2023, https://arxiv.org/abs/2305.16562",
    ),
    _entry(
        "two_nn",
        "intrinsic dimension by the ratio of the two nearest distances",
        needs="features", layer="backbone", better="lower",
        settings=f"duplicates left out, 10 % discarded, {_MANY}",
        reference="Facco et al., 2017, https://doi.org/10.1038/s41598-017-11873-y",
        at_most=PAIRS_IMAGES,
    ),
    _entry(
        "mst_dimension",
        "intrinsic dimension by the growth of minimum spanning trees",
        needs="features", layer="backbone", better="lower",
        settings=f"duplicates left out, {_MANY}", at_most=PAIRS_IMAGES,
        reference="Costa & Hero, 2004, https://doi.org/10.1109/TSP.2004.831130; "
        "of representations: IdEst, https://arxiv.org/abs/2606.03338",
    ),
    _entry(
        "cluster_learnability",
        "how well nearest neighbours predict k-means clusters; with two_nn, over a pool, CLID",
        needs="features", layer="backbone", better="higher",
        settings="√N clusters, unit length, two halves, at most 1,024 images",
        reference="Lu et al., 2022, https://arxiv.org/abs/2206.01251", at_most=1024,
    ),
    _entry(
        "kmeans_agreement",
        "agreement of the k-means clusters of two views, beyond chance",
        needs="views", layer="backbone", better="higher",
        settings="10 clusters, adjusted mutual information, at most 1,024 images",
        reference="Xu et al., 2024, https://arxiv.org/abs/2409.06612", at_most=1024,
    ),
    _entry(
        "kmeans_silhouette",
        "silhouette of ten k-means clusters; a weak baseline",
        needs="features", layer="backbone", better="higher",
        settings=f"10 clusters, best of 3 starts, {_MANY}", reference="scikit-learn",
        at_most=PAIRS_IMAGES,
    ),
    _entry(
        "kmeans_davies_bouldin",
        "Davies–Bouldin index of ten k-means clusters; a weak baseline",
        needs="features", layer="backbone", better="lower",
        settings=f"10 clusters, best of 3 starts, {_MANY}", reference="scikit-learn",
        at_most=PAIRS_IMAGES,
    ),
)  # fmt: skip

SCORES: Mapping[str, ScoreInfo] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def ranking(by: str | None = None) -> tuple[str, ...]:
    """The scores that may rank, with the one that is asked for.

    >>> ranking("two_nn")[-2:]
    ('sns_width@kernels', 'two_nn')
    """
    return HEADLINES if by is None else (*HEADLINES, by)


def parse(name: str) -> tuple[str, str]:
    """``rankme`` → (rankme, projector), ``rankme@backbone`` → (rankme, backbone).

    >>> parse("lidar@backbone")
    ('lidar', 'backbone')
    """
    name, _, layer = name.partition("@")
    check_choice("score", name, SCORES)
    if layer:
        check_choice(f"layer of {name}", layer, SCORES[name].layers)
    return name, layer or SCORES[name].layer


def layers_of(name: str) -> tuple[str, ...]:
    """The layers that ``name`` may be read from: the one it names, or all, the usual one first.

    >>> layers_of("rankme"), layers_of("rankme@backbone")
    (('projector', 'backbone'), ('backbone',))
    """
    chosen, layer = parse(name)
    if "@" in name:
        return (layer,)
    return (layer, *(other for other in SCORES[chosen].layers if other != layer))


def quality(better: str, value: Any) -> Any:
    """Higher is better, whatever the score: −value where lower is, −|value − 1| where 1 is.

    Args:
        better: higher, lower or near 1.
        value: a number, or an array of them.
    """
    return {"higher": value, "lower": -value, "near 1": -abs(value - 1.0)}[better]
