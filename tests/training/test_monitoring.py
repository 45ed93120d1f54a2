"""Callbacks for modules that are not ours: in both Lightnings, without a trace, seen by others."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import lightning.pytorch
import numpy as np
import optuna
import pytest
import pytorch_lightning
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import radial
from radial.data import Images
from radial.data.augmentations import FIXED_VIEWS
from radial.evaluation.features import extract_layers
from radial.evaluation.monitor import label
from radial.metrics import view_retrieval
from radial.metrics.registry import LAYERS, SCORES
from radial.verdicts import WINDOW

PACKAGES = {"pytorch_lightning": pytorch_lightning, "lightning": lightning.pytorch}
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice is for who wrote a module


@pytest.fixture(params=PACKAGES)
def pl(request: pytest.FixtureRequest):
    return PACKAGES[request.param]


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8)


def network() -> nn.Module:
    """BatchNorm and Dropout: both would show what a look leaves behind."""
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))


def module(pl, *, validates: bool = False):
    class Theirs(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.ModuleDict({"trunk": network()})
            self.head = nn.Linear(8, 6)
            self.flat = False

        def embed(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.net["trunk"](x).flatten(1))

        def training_step(self, batch, batch_idx):
            z = self.embed(batch[0] + 0.1 * torch.randn_like(batch[0]))
            return (z * 0).sum() if self.flat else z.square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    if validates:
        Theirs.validation_step = lambda self, batch, batch_idx: None
    return Theirs()


def fit(pl, folder: Path, *, callbacks, validates: bool = False, steps: int = 20, **options):
    torch.manual_seed(3)
    model = module(pl, validates=validates)
    data = TensorDataset(torch.randn(40, 3, 16, 16))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    options = {"max_steps": steps, "logger": False, "enable_checkpointing": False} | options
    trainer = pl.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(model, loader, loader if validates else None)
    return trainer, model


def trunk(model: nn.Module) -> nn.Module:
    return model.net["trunk"]


@pytest.mark.parametrize("unit", ["epoch", "step"])
def test_twenty_steps_with_it_are_twenty_steps_without_it(pl, unit, images, tmp_path) -> None:
    monitor = radial.LabelFreeMonitor(
        images, trunk, scores=("view_retrieval", "rankme", "rotation_probe"),
        every=1 if unit == "epoch" else 3, unit=unit,
    )  # fmt: skip
    guard = radial.CollapseGuard("head")
    assert isinstance(monitor, pl.Callback)
    watched, first = fit(pl, tmp_path, callbacks=[monitor, guard])
    random = torch.get_rng_state()
    _, second = fit(pl, tmp_path, callbacks=[])
    assert torch.equal(random, torch.get_rng_state())
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, value in second.state_dict().items():
        assert torch.equal(first.state_dict()[name], value), name
    assert all(part.training for part in first.modules())
    assert not first.head._forward_hooks  # the guard let go
    assert {"view_retrieval", "rankme", "rotation_probe"} <= set(watched.callback_metrics)


@pytest.mark.parametrize("validates", [False, True])
def test_what_it_logs_is_seen_by_stock_callbacks(pl, validates, images, tmp_path) -> None:
    seen: list[tuple[str, float]] = []

    class Pruner(pl.Callback):
        """As Optuna's does: it asks when a validation has ended."""

        def on_validation_end(self, trainer, pl_module) -> None:
            if not trainer.sanity_checking:
                seen.append(("val", float(trainer.callback_metrics["view_retrieval"])))

        def on_train_epoch_start(self, trainer, pl_module) -> None:
            if trainer.current_epoch:
                seen.append(("train", float(trainer.callback_metrics["view_retrieval"])))

    kept = pl.callbacks.ModelCheckpoint(
        tmp_path, monitor="view_retrieval", mode="max", save_top_k=-1, filename="{epoch}"
    )
    stop = pl.callbacks.EarlyStopping("view_retrieval", mode="max", patience=1, min_delta=1.0)
    monitor = radial.LabelFreeMonitor(images, "net.trunk")
    trainer, _ = fit(
        pl, tmp_path, callbacks=[stop, kept, Pruner(), monitor], validates=validates,
        enable_checkpointing=True, max_epochs=4, steps=-1,
    )  # fmt: skip
    assert trainer.current_epoch == 2  # nothing rises by 1
    assert len(kept.best_k_models) == 2
    look = radial.Monitor(images)
    for path, value in kept.best_k_models.items():
        model = module(pl)
        model.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
        assert look(model.net["trunk"])["view_retrieval"] == pytest.approx(float(value), rel=1e-6)
    first, second = (float(value) for value in kept.best_k_models.values())
    expected = [("val", first), ("train", first), ("val", second)]
    assert seen == [pair for pair in expected if validates or pair[0] == "train"]


@pytest.mark.parametrize("hook", ["on_validation_end", "on_train_epoch_end"])
def test_optuna_prunes_a_bad_trial_by_it(pl, hook, images, tmp_path) -> None:
    """In a module that validates, when Optuna's own callback asks; else in one's own five lines."""
    validates = hook == "on_validation_end"
    monitor = radial.LabelFreeMonitor(images, "net.trunk")  # one for all trials

    class Prune(pl.Callback):
        def __init__(self, trial: optuna.Trial) -> None:
            self.trial = trial

    def ask(self, trainer, pl_module) -> None:
        if not trainer.sanity_checking:
            found = trainer.callback_metrics["view_retrieval"].item()
            self.trial.report(found, step=trainer.current_epoch)
            if self.trial.should_prune():
                raise optuna.TrialPruned

    setattr(Prune, hook, ask)

    class Constant(pl.Callback):
        def on_train_start(self, trainer, pl_module) -> None:
            nn.init.zeros_(pl_module.net["trunk"][0].weight)

    def objective(trial: optuna.Trial) -> float:
        bad = [Constant()] if trial.suggest_categorical("bad", [False, True]) else []
        trainer, _ = fit(
            pl, tmp_path, callbacks=[monitor, Prune(trial), *bad], validates=validates,
            max_epochs=3, steps=-1,
        )  # fmt: skip
        return trainer.callback_metrics["view_retrieval"].item()

    pruner = optuna.pruners.MedianPruner(n_startup_trials=1)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for bad in (False, True, True, False):
        study.enqueue_trial({"bad": bad})
    study.optimize(objective, n_trials=4)
    told = [(trial.state.name, list(trial.intermediate_values)) for trial in study.trials]
    whole, pruned = ("COMPLETE", [0, 1, 2]), ("PRUNED", [0])
    assert told == [whole, pruned, pruned, whole]
    # the second trial that is pruned ends where the first has: its only look is at the same step
    assert study.trials[1].intermediate_values[0] < study.best_value


@pytest.mark.parametrize("steps", [1, 3])
def test_a_monitor_and_a_guard_begin_anew_with_each_fit(pl, steps, images, tmp_path) -> None:
    monitor = radial.LabelFreeMonitor(images, "net.trunk", every=steps, unit="step")
    guard = radial.CollapseGuard("head", stop=True, tell=lambda line: None)
    guard.verdict, guard.reason, guard.stopped = "collapsed", "of another run", True
    guard.events.append({"step": 3, "verdict": "collapsed", "reason": "of another run"})
    guard._recent.extend([(1.0, 0.0)] * WINDOW)
    for _ in range(2):
        trainer, _ = fit(pl, tmp_path, callbacks=[monitor, guard], steps=steps)
        assert "view_retrieval" in trainer.callback_metrics
        assert (trainer.global_step, guard.verdict, guard.stopped) == (steps, "ok", False)
        assert (guard.reason, guard.events) == ("", [])
    before, other = guard.state_dict(), radial.CollapseGuard("head")
    other.stopped = True  # in another run; now it goes on with this one, from a checkpoint
    other._recent.append((1.0, 0.0))
    other.load_state_dict(before)
    assert (other.state_dict(), other.stopped) == (before, False)


def test_names_are_taken_by_every_logger() -> None:
    """W&B sorts and filters what GraphQL has as a name; MLflow, TensorBoard and Comet take more.

    MLflow: alphanumerics, underscores, dashes, periods, spaces and slashes, up to 250 of them; the
    logger of Lightning drops all others without asking.
    """
    asked = [*SCORES, *(f"{name}@{layer}" for name in SCORES for layer in LAYERS)]
    told = [label(name) for name in asked]
    for name in told:
        assert re.fullmatch(r"[_a-zA-Z][_a-zA-Z0-9]*", name), name
        assert len(name) <= 250
    assert len({name.lower() for name in told}) == len(asked)  # and no two become one


def test_a_look_is_the_score_of_its_views(images) -> None:
    backbone = network().eval()
    monitor = radial.Monitor(images, ("view_retrieval", "view_retrieval@projector"))
    head = nn.Linear(8, 6)
    found = monitor(backbone, head)
    held = Images(images, torch.arange(40), stored_size=16)
    flat = nn.Sequential(backbone, nn.Flatten())
    views = extract_layers(flat, head, held, **monitor.drawn, **monitor.common)
    assert found["view_retrieval"] == view_retrieval(views.backbone)
    assert found["view_retrieval_projector"] == view_retrieval(views.projector)
    assert monitor(lambda x: backbone(x), head) == found
    by_recipe = radial.Monitor(images, ("view_retrieval_recipes",), view="strong")(backbone)
    alone = [radial.Monitor(images, view=name)(backbone)["view_retrieval"] for name in FIXED_VIEWS]
    assert by_recipe["view_retrieval_recipes"] == pytest.approx(sum(alone) / 3)


def test_arc_compares_with_the_network_before_its_first_step(pl, images, tmp_path) -> None:
    monitor = radial.LabelFreeMonitor(images, "net.trunk", scores=("acr", "arc"))
    trainer, _ = fit(pl, tmp_path, callbacks=[monitor])
    torch.manual_seed(3)
    start = radial.Monitor(images, ("acr",))(module(pl).net["trunk"])["acr"]
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert found["arc"] == pytest.approx((1 - found["acr"]) / (1 - start), rel=1e-6)


def test_images_as_people_have_them(folder) -> None:
    """A folder, its files and a dataset of them are the same images."""
    paths = sorted(folder.rglob("*.png"))
    pictures = [(Image.open(path), 0) for path in paths]
    pixels = torch.stack(
        [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image, _ in pictures]
    )
    backbone = network()
    found = [radial.Monitor(images)(backbone) for images in (folder, paths, pictures, pixels)]
    assert found[0]["view_retrieval"] > 0
    assert found == 4 * found[:1]


def test_a_diverged_network_has_nan(images) -> None:
    backbone = network()
    nn.init.constant_(backbone[0].weight, float("inf"))
    found = radial.Monitor(images, ("view_retrieval", "rankme@backbone"))(backbone)
    assert all(value != value for value in found.values())


def test_steps_reach_the_logger_whatever_it_logs_else(pl, images, tmp_path) -> None:
    logger = pl.loggers.CSVLogger(tmp_path)
    monitor = radial.LabelFreeMonitor(images, "net.trunk", every=3, unit="step")
    fit(pl, tmp_path, callbacks=[monitor], logger=logger, steps=8)
    logger.save()
    lines = Path(logger.log_dir, "metrics.csv").read_text().splitlines()
    assert lines[0].split(",") == ["step", "view_retrieval"]
    assert [line.split(",")[0] for line in lines[1:]] == ["3", "6"]


def test_steps_are_those_of_the_optimiser(pl, images, tmp_path) -> None:
    """Five batches an epoch: steps 1 and 2 after batches 3 and 5; nothing is seen before."""
    logger = pl.loggers.CSVLogger(tmp_path)
    monitor = radial.LabelFreeMonitor(images, "net.trunk", every=1, unit="step")
    fit(
        pl, tmp_path, callbacks=[monitor], logger=logger, steps=4, max_epochs=2,
        accumulate_grad_batches=3,
    )  # fmt: skip
    logger.save()
    lines = Path(logger.log_dir, "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(("part", "given"), [("net.trunk", "(8, 8, 1, 1)"), ("several", "tuple")])
def test_the_guard_says_what_it_cannot_read(pl, part, given, tmp_path) -> None:
    class Several(nn.Module):
        def forward(self, x):
            return x, x

    class Add(pl.Callback):
        def setup(self, trainer, pl_module, stage) -> None:
            pl_module.several = Several()
            embed = pl_module.embed
            pl_module.embed = lambda x: pl_module.several(embed(x))[0]

    message = re.escape(f"{part} must give embeddings (B, D), not {given}")
    with pytest.raises(ValueError, match=message):
        fit(pl, tmp_path, callbacks=[Add(), radial.CollapseGuard(part)])


def test_the_guard_tells_and_stops(pl, tmp_path) -> None:
    class Flatten(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
            if trainer.global_step == 5:
                nn.init.zeros_(pl_module.head.weight)
                pl_module.flat = True

    told: list[str] = []
    guard = radial.CollapseGuard("head", stop=True, tell=told.append)
    trainer, _ = fit(pl, tmp_path, callbacks=[Flatten(), guard], steps=100)
    assert guard.verdict == "collapsed"
    assert 5 < trainer.global_step <= 5 + WINDOW + 1
    assert told == [f"step {guard.events[0]['step']}: collapsed: {guard.reason}"]
    again = pickle.loads(pickle.dumps(radial.CollapseGuard(stop=True)))
    assert isinstance(again, pl.Callback)
    assert again.stop


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: radial.Monitor(x[:8]), "a monitor needs 16 images at least, not 8"),
        (lambda x: radial.Monitor(x, "rankme"), "scores must be a tuple of names, not 'rankme'"),
        (lambda x: radial.Monitor(x, ("rankmee",)), "unknown score 'rankmee'"),
        (lambda x: radial.LabelFreeMonitor(x, unit="hour"), "unknown unit 'hour'"),
        (lambda x: radial.LabelFreeMonitor(x, every=0), "every must be an integer of at least 1"),
        (lambda x: radial.Monitor(x, ("lidar@projector",))(network()), "needs a projection head"),
        (lambda x: radial.Monitor(x, ("sns_width",))(network(), nn.Linear(8, 6)), "an RBFN head"),
        (lambda x: radial.Monitor(x)(nn.Flatten(2)), "must give one row of features an image"),
    ],
)
def test_bad_input(make, message, images) -> None:
    with pytest.raises(ValueError, match=message):
        make(images)


def test_a_part_that_is_not_there(pl, images, tmp_path) -> None:
    with pytest.raises(ValueError, match="Theirs has no 'backbone'; its parts are: net, head"):
        fit(pl, tmp_path, callbacks=[radial.LabelFreeMonitor(images)])


def test_importing_it_loads_no_lightning() -> None:
    code = (
        "import sys, radial; radial.LabelFreeMonitor, radial.CollapseGuard, radial.Monitor; "
        "assert not {'pytorch_lightning', 'lightning', 'lightly'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


DDP = """
import sys, torch, radial
import {package} as pl
sys.path.insert(0, {tests!r})
from training.test_monitoring import module
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(0)
    images = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8)
    kept = pl.callbacks.ModelCheckpoint({folder!r}, monitor="view_retrieval", mode="max",
                                        save_top_k=-1, filename="{{epoch}}")
    model = module(pl)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        callbacks=[radial.LabelFreeMonitor(images, "net.trunk"), radial.CollapseGuard("head"),
                   pl.callbacks.EarlyStopping("view_retrieval", mode="max"), kept],
        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(TensorDataset(torch.randn(40, 3, 16, 16)), batch_size=4))
    values = {{path: float(v) for path, v in kept.best_k_models.items()}}
    with open({folder!r} + f"/rank{{trainer.global_rank}}.txt", "w") as file:
        file.write(repr((values, float(trainer.callback_metrics["view_retrieval"]))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", ["pytorch_lightning", "lightning.pytorch"])
def test_over_two_processes(package, tmp_path) -> None:
    script = tmp_path / "train.py"
    tests = str(Path(__file__).parents[1])
    script.write_text(DDP.format(package=package, folder=str(tmp_path), tests=tests))
    subprocess.run([sys.executable, script], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    ranks = [eval((tmp_path / f"rank{rank}.txt").read_text()) for rank in range(2)]
    assert ranks[0] == ranks[1]  # all ranks decide alike
    values, last = ranks[0]
    assert len(values) == 2
    assert last == list(values.values())[-1]
    torch.manual_seed(0)
    look = radial.Monitor(torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8))
    for path, value in values.items():  # that of rank 0, whose buffers are in the file
        model = module(pytorch_lightning)
        model.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
        assert look(model.net["trunk"])["view_retrieval"] == pytest.approx(value, rel=1e-6)
