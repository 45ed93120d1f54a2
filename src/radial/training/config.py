"""What one run is made of. Light to import: no torch, so that errors come at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_type_hints

from radial.checks import as_kind, check_choice, check_number, check_size
from radial.devices import NAMES, PRECISIONS

Settings = Mapping[str, Any]

RADIAL_FUNCTIONS = (
    "gaussian", "quadratic", "inverse_quadratic", "multiquadric", "inverse_multiquadric", "tps",
    "linear", "rth", "matern32", "matern52",
)  # fmt: skip
HEADS = (
    "default", "rbfn", "rbfn-normalized", "rbfn-plain", "rbfn-frozen", "rbfn-paper", "mlp",
    "mlp-silu", "residual-linear", "linear",
)  # fmt: skip
LOGGERS = ("tensorboard", "mlflow", "wandb")

_SGD = {"optimizer": "sgd", "base_lr": 0.12, "weight_decay": 5e-4}
_ADAMW = {"optimizer": "adamw", "base_lr": 1e-3, "weight_decay": 1e-4}

# From scratch, on batches of some hundreds. What a method has no use for is not set.
DEFAULTS: Mapping[str, Settings] = MappingProxyType(
    {
        "simclr": _SGD | {"temperature": 0.5},
        "moco": _SGD | {"temperature": 0.2, "momentum": 0.99},
        "byol": _SGD,
        "swav": _ADAMW | {"temperature": 0.1},
        "simsiam": _SGD,
        "barlow_twins": _ADAMW,
        "vicreg": _ADAMW,
        "dino": _SGD | {"base_lr": 0.24, "temperature": 0.1, "teacher_temperature": 0.04},
        "nnclr": _SGD | {"temperature": 0.1},
        "supervised": _SGD,
        "supcon": _SGD | {"temperature": 0.1},
    }
)

_PUBLISHED = {
    "backbone": "resnet50",
    "weights": "IMAGENET1K_V2",
    "image_size": 224,
    "split": "paper",
    "epochs": 100,
    "warmup_epochs": 0.0,
    "kernel_lr_scale": 1.0,
}


def _paper(
    optimizer: str, base_lr: float, decay: float, batch: int, dims: tuple[int, int], **more: Any
) -> Settings:
    hidden, output = dims
    optimisation = {"optimizer": optimizer, "base_lr": base_lr, "weight_decay": decay}
    sizes = {"batch_size": batch, "hidden_dim": hidden, "output_dim": output}
    return _PUBLISHED | optimisation | sizes | more


# The published runs; for the methods the paper does not have, what their own papers take for CNNs
# (DINO's weight decay stays at its start), and for the anchors what is usual.
# The paper says "pre-trained on ImageNet-1K", not by which of torchvision's two sets of weights.
PAPER: Mapping[str, Settings] = MappingProxyType(
    {
        "simclr": _paper(
            "lars", 0.3, 1e-6, 2048, (2048, 128), temperature=0.5, published_head=True
        ),
        "moco": _paper(
            "sgd", 0.03, 1e-4, 256, (2048, 128), temperature=0.2, momentum=0.999, queue_size=4096
        ),
        "byol": _paper("lars", 0.2, 1.5e-6, 2048, (4096, 256), momentum=0.996),
        "swav": _paper(
            "lars", 0.6, 1e-6, 2048, (2048, 128), temperature=0.1, prototypes=2048, queue_size=0
        ),
        "simsiam": _paper("sgd", 0.05, 1e-4, 512, (2048, 2048)),
        "barlow_twins": _paper("lars", 0.2, 1.5e-6, 2048, (8192, 8192)),
        "vicreg": _paper("lars", 0.2, 1e-6, 2048, (8192, 8192)),
        "dino": _paper(
            "adamw",
            5e-4,
            0.04,
            1024,
            (2048, 256),
            temperature=0.1,
            teacher_temperature=0.04,
            momentum=0.996,
            prototypes=65536,
        ),
        "nnclr": _paper("lars", 0.3, 1e-6, 4096, (2048, 256), temperature=0.1, queue_size=98304),
        "supervised": _paper("sgd", 0.1, 1e-4, 256, (2048, 128)),
        "supcon": _paper("lars", 0.3, 1e-6, 2048, (2048, 128), temperature=0.1),
    }
)
PRESETS = {"paper": PAPER}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run. What is None is chosen to fit method and data; the run's config.yaml says how.

    Args:
        method: simclr, moco, byol, swav, simsiam, barlow_twins, vicreg, dino or nnclr; with labels,
            to compare with: supervised or supcon.
        head: default (LightlySSL's), rbfn, rbfn-normalized, rbfn-plain (no residual path),
            rbfn-frozen (kernels stay as calibrated), rbfn-paper (as published: dead), mlp (an MLP
            with the depth, width and BatchNorm of rbfn), mlp-silu, residual-linear (rbfn without
            its kernels) or linear.
        data: digits, cifar10, cifar100, stl10, fashion-mnist, folder:PATH, imagenet:PATH,
            imagenet100:PATH or open-images:PATH.
        out: directory of the run; by default runs/DATA-METHOD-HEAD-SEED.
        backbone: resnet18, resnet34, resnet50, narrow ones such as resnet9-w0.25, small ViTs such
            as vit-tiny-p4, or timm:NAME.
        weights: of the backbone: a torchvision name such as IMAGENET1K_V2, or a file.
        image_size: side in pixels; by default the dataset's.
        split: auto (the dataset's own, else paper), paper (stratified 70/10/20), own.
        data_root: where downloaded datasets are kept.
        max_bad_images: how many unreadable images are skipped before it is an error.
        workers: processes that decode images, for sets too large for memory; one a core, up to 8.
        color_strength: factor on the strength of the colour jitter.
        min_scale: smallest share of the area that a crop takes; by default the recipe's.
        hidden_dim: width of the head.
        output_dim: width of the embeddings.
        num_layers: depth of the projection head, where it can vary.
        num_kernels: kernels of an RBF layer.
        radial_function: of the RBF layers.
        distance: euclidean or manhattan.
        normalize: normalised RBF layers; by default as the head has it.
        residual: x + RBF(x); by default as the head has it.
        head_batch_norm: BatchNorm in an RBFN head; by default as the head has it.
        published_head: the default head as in the published runs: SimCLR's without BatchNorm.
        calibrate: set an RBFN head from real features before training (not rbfn-paper).
        temperature: of SimCLR, MoCo, SwAV, NNCLR, SupCon and DINO's student.
        teacher_temperature: of DINO's teacher.
        momentum: of the momentum encoder of MoCo, BYOL and DINO.
        queue_size: keys in MoCo's queue, or embeddings in NNCLR's and SwAV's (0: none).
        prototypes: of SwAV and DINO.
        redundancy: weight of Barlow Twins' off-diagonal terms; 0.005.
        invariance: weight of VICReg's distance of the views; 25.
        variance: weight of VICReg's variance; 25.
        covariance: weight of VICReg's covariance; 1.
        epochs: how often the training images are seen.
        batch_size: images a step, over all devices.
        optimizer: sgd, lars or adamw.
        base_lr: learning rate for 256 images a step; scaled by batch_size / 256.
        weight_decay: of weights; not of biases, norms and kernels.
        warmup_epochs: linear warm-up before the cosine.
        kernel_lr_scale: factor on the learning rate of kernel centres.
        shape_lr_scale: factor on the learning rate of kernel shapes.
        seed: of everything random.
        precision: 32, bf16 or 16 (16 needs a GPU).
        accelerator: auto (a GPU where there is one), cpu, gpu, cuda or mps.
        devices: on each node.
        num_nodes: machines.
        threads: of torch on the CPU; by default torch's choice.
        compile: networks by torch.compile: on, off, or auto, where the steps to come repay it. The
            result is the same but for rounding; config.yaml says what was chosen.
        keep: last, or best: best.ckpt too, of the look at which the first score of monitor was best
            (view_retrieval, if none is named).
        patience: end after the epoch in which so many looks have passed since that score was best.
        save_every: keep a checkpoint every so many epochs; 0 keeps the last only.
        knn: nearest-neighbour accuracy on the validation images after each epoch (uses labels).
        monitor: label-free scores of held-out images, such as rankme, lidar@backbone, sns_width.
        monitor_every: how many epochs or steps lie between two looks of the monitor.
        monitor_unit: epoch or step.
        loggers: any of tensorboard, mlflow, wandb, beside metrics.csv.
        on_collapse: warn, or stop when a head is dead or embeddings have collapsed.
    """

    GROUPS: ClassVar = {  # of options, for --help
        "what is trained": "method head backbone weights seed",
        "images": "data data_root split image_size max_bad_images workers",
        "views": "color_strength min_scale",
        "head": "hidden_dim output_dim num_layers num_kernels radial_function distance normalize "
        "residual head_batch_norm published_head calibrate",
        "method": "temperature teacher_temperature momentum queue_size prototypes redundancy "
        "invariance variance covariance",
        "optimisation": "epochs batch_size optimizer base_lr weight_decay warmup_epochs "
        "kernel_lr_scale shape_lr_scale",
        "machine": "precision accelerator devices num_nodes threads compile",
        "what is kept and watched": "out keep patience save_every knn monitor monitor_every "
        "monitor_unit loggers on_collapse",
    }

    method: str = "simclr"
    head: str = "default"
    data: str = "digits"
    out: str | None = None
    backbone: str | None = None
    weights: str | None = None
    image_size: int | None = None
    split: Literal["auto", "paper", "own"] = "auto"
    data_root: str | None = None
    max_bad_images: int = 10
    workers: int | None = None
    color_strength: float = 1.0
    min_scale: float | None = None
    hidden_dim: int | None = None
    output_dim: int | None = None
    num_layers: int | None = None
    num_kernels: int = 128
    radial_function: str = "gaussian"
    distance: Literal["euclidean", "manhattan"] = "euclidean"
    normalize: bool | None = None
    residual: bool | None = None
    head_batch_norm: bool | None = None
    published_head: bool = False
    calibrate: bool = True
    temperature: float | None = None
    teacher_temperature: float | None = None
    momentum: float | None = None
    queue_size: int | None = None
    prototypes: int | None = None
    redundancy: float | None = None
    invariance: float | None = None
    variance: float | None = None
    covariance: float | None = None
    epochs: int = 100
    batch_size: int | None = None
    optimizer: Literal["sgd", "lars", "adamw"] | None = None
    base_lr: float | None = None
    weight_decay: float | None = None
    warmup_epochs: float | None = None
    kernel_lr_scale: float = 1.0
    shape_lr_scale: float = 1.0
    seed: int = 0
    precision: Literal["32", "bf16", "16"] = "32"
    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    threads: int | None = None
    compile: Literal["auto", "on", "off"] = "off"
    keep: Literal["last", "best"] = "last"
    patience: int | None = None
    save_every: int = 0
    knn: bool = False
    monitor: tuple[str, ...] = ()
    monitor_every: int = 1
    monitor_unit: Literal["epoch", "step"] = "epoch"
    loggers: tuple[str, ...] = ()
    on_collapse: Literal["warn", "stop"] = "warn"

    def __post_init__(self) -> None:
        check_choice("method", self.method, DEFAULTS)
        check_choice("head", self.head, HEADS)
        check_choice("split", self.split, ("auto", "paper", "own"))
        check_choice("distance", self.distance, ("euclidean", "manhattan"))
        check_choice("optimizer", self.optimizer, (None, "sgd", "lars", "adamw"))
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("accelerator", self.accelerator, NAMES)
        check_choice("compile", self.compile, ("auto", "on", "off"))
        check_choice("on_collapse", self.on_collapse, ("warn", "stop"))
        check_choice("keep", self.keep, ("last", "best"))
        check_choice("monitor_unit", self.monitor_unit, ("epoch", "step"))
        for name in ("loggers", "monitor"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a tuple of names, not {getattr(self, name)!r}")
        for name in self.loggers:
            check_choice("logger", name, LOGGERS)
        for name, least in _SIZES.items():
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name), minimum=least)
        for name, (low, high) in _NUMBERS.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low, high)
        check_choice("radial_function", self.radial_function, RADIAL_FUNCTIONS)
        for name, methods in _ONLY_FOR.items():
            if getattr(self, name) is not None and self.method not in methods:
                raise ValueError(f"{name} is for {', '.join(methods)}, not {self.method}")
        for name, usual in _ONLY_RBFN.items():
            ranked = name == "num_kernels" and self.head == "residual-linear"
            if getattr(self, name) != usual and not (self.head.startswith("rbfn") or ranked):
                raise ValueError(f"{name} is for RBFN heads, not for {self.head}")
        if self.head == "rbfn-normalized" and self.normalize is False:
            raise ValueError("normalize is true for the head rbfn-normalized: rbfn has it false")
        if self.head == "rbfn-plain" and self.residual:
            raise ValueError("residual is false for the head rbfn-plain: rbfn has it true")
        if self.head == "linear" and self.num_layers is not None:
            raise ValueError("num_layers is not for the linear head, which has one")

    @property
    def directory(self) -> Path:
        """Where the run is written: ``out``, or a name made of data, method, head and seed."""
        place = f"runs/{slug(self.data)}-{self.method}-{self.head}-{self.seed}"
        return Path(place if self.out is None else self.out)

    @property
    def lr(self) -> float:
        """The learning rate at its peak: linear in the batch size."""
        if self.base_lr is None or self.batch_size is None:
            raise ValueError("the learning rate is known once batch_size and base_lr are")
        return self.base_lr * self.batch_size / 256

    @property
    def watched(self) -> tuple[str, ...]:
        """The scores of the monitor; the first decides what is best."""
        decides = self.keep == "best" or self.patience is not None
        return self.monitor or (("view_retrieval",) if decides else ())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in config.yaml.

        Returns:
            A value for each field.
        """
        return asdict(self) | {"loggers": list(self.loggers), "monitor": list(self.monitor)}

    def with_defaults(self, defaults: Settings) -> RunConfig:
        """What is None taken from defaults.

        Args:
            defaults: values by name of field.

        Returns:
            A new config.
        """
        return replace(self, **{k: v for k, v in defaults.items() if getattr(self, k) is None})


_SIZES = {
    "image_size": 16, "max_bad_images": 0, "workers": 0, "hidden_dim": 1, "output_dim": 1,
    "num_layers": 2, "num_kernels": 1, "queue_size": 0, "prototypes": 2, "epochs": 1,
    "batch_size": 2, "seed": 0, "devices": 1, "num_nodes": 1, "threads": 1, "save_every": 0,
    "patience": 1, "monitor_every": 1,
}  # fmt: skip
_NUMBERS = {
    "color_strength": (0.0, 2.0), "min_scale": (1e-3, 1.0), "temperature": (1e-4, 1e4),
    "teacher_temperature": (1e-4, 1e4), "redundancy": (0.0, 1e6), "invariance": (0.0, 1e6),
    "variance": (0.0, 1e6), "covariance": (0.0, 1e6),
    "momentum": (0.0, 1.0), "base_lr": (0.0, 1e6), "weight_decay": (0.0, 1e6),
    "warmup_epochs": (0.0, 1e9), "kernel_lr_scale": (0.0, 1e9), "shape_lr_scale": (0.0, 1e9),
}  # fmt: skip
_ONLY_RBFN = {
    "num_kernels": 128, "radial_function": "gaussian", "distance": "euclidean", "normalize": None,
    "residual": None, "head_batch_norm": None,
}  # fmt: skip
_ONLY_FOR = {
    "temperature": ("simclr", "moco", "swav", "dino", "nnclr", "supcon"),
    "teacher_temperature": ("dino",),
    "momentum": ("moco", "byol", "dino"),
    "queue_size": ("moco", "swav", "nnclr"),
    "prototypes": ("swav", "dino"),
    "redundancy": ("barlow_twins",),
    "invariance": ("vicreg",),
    "variance": ("vicreg",),
    "covariance": ("vicreg",),
}


def from_dict(settings: Mapping[str, Any], place: str = "") -> RunConfig:
    """A config from what ``to_dict`` gave, or from a file; each value as its field is annotated.

    Args:
        settings: by name.
        place: what an error begins with, such as ``config.yaml: ``.
    """
    kinds = get_type_hints(RunConfig)
    known = {field.name: kinds[field.name] for field in fields(RunConfig)}
    if unknown := sorted(map(str, set(settings) - set(known))):
        raise ValueError(
            f"{place}unknown settings {', '.join(unknown)}; known: {', '.join(sorted(known))}"
        )
    given = {k: v for k, v in settings.items() if v is not None or k not in ("loggers", "monitor")}
    try:
        return RunConfig(**{name: as_kind(name, v, known[name]) for name, v in given.items()})
    except ValueError as error:
        raise ValueError(f"{place}{error}") from error


def preset(name: str, method: str) -> Settings:
    check_choice("preset", name, PRESETS)
    check_choice("method", method, DEFAULTS)
    return PRESETS[name][method]


def resolve(config: RunConfig, *, images: int, image_size: int, features: int) -> RunConfig:
    """Every None filled in: to fit ``images`` training images and ``features`` of the backbone.

    Widths are those of the published heads (see `radial.rbf.heads.DEFAULT_HEADS`) but at most
    four times the features; the batch is at most 256 and a quarter of the images; MoCo's and
    NNCLR's queues at most half of the images, SwAV's prototypes one for 64 images, its queue only
    as long as the batch is smaller than the prototypes, DINO's prototypes one for 16 images and
    its embeddings no wider than the features: cosines of wide ones are too small beside the
    teacher's temperature. BYOL's target follows more quickly in short runs: base momentum
    1 − 30 / steps, between 0.9 and the published 0.996.
    """
    published = PAPER[config.method]
    batch = config.batch_size or power_of_two(min(256, images // 4))
    warmup = min(10.0, config.epochs / 10)
    chosen = {
        "image_size": image_size,
        "hidden_dim": min(published["hidden_dim"], 4 * features),
        "output_dim": min(published["output_dim"], 4 * features),
        "batch_size": batch,
        "warmup_epochs": warmup,
        **DEFAULTS[config.method],
    }
    if config.head == "rbfn-normalized":
        chosen["normalize"] = True
    if config.method == "byol":
        steps = config.epochs * (images // batch)
        chosen["momentum"] = min(0.996, max(0.9, 1.0 - 30.0 / max(1, steps)))
    if config.method in ("moco", "nnclr"):
        most = published["queue_size"]
        chosen["queue_size"] = max(batch, power_of_two(min(most, images // 2)))
    if config.method == "dino":
        chosen["momentum"] = published["momentum"]
        chosen["output_dim"] = min(published["output_dim"], features)
        chosen["prototypes"] = power_of_two(min(65536, images // 16), least=64)
    if config.method == "swav":
        prototypes = config.prototypes or power_of_two(min(2048, images // 64), least=16)
        chosen["prototypes"] = prototypes
        chosen["queue_size"] = 0 if batch >= prototypes else 2 * prototypes // batch * batch
    return config.with_defaults(chosen)


def power_of_two(limit: int, least: int = 2) -> int:
    """The largest power of two up to ``limit``, and not below ``least``."""
    return max(least, 1 << max(limit, 1).bit_length() - 1)


def slug(data: str) -> str:
    """A dataset's name as part of a file name."""
    kind, _, path = data.partition(":")
    return f"{kind}-{Path(path).name}" if path else kind
