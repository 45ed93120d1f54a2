"""Plans: what is in them, what is refused, and which runs are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from radial.study.plan import MACHINE, Study, from_values, identity, presets, read_study
from radial.training.config import PAPER, RunConfig

BASE = {"name": "t", "constants": {"data": "digits"}}


def study(**values: object) -> Study:
    return from_values(BASE | values)


@pytest.mark.parametrize(
    ("name", "runs"), [("paper-baseline", 9), ("paper-rbfn", 216), ("heads", 30), ("quick", 28)]
)
def test_presets(name: str, runs: int) -> None:
    plan = read_study(name, ["data=digits"]).runs()
    assert len(plan) == runs == len({run.id for run in plan})
    assert [run.index for run in plan] == list(range(runs))
    assert name in presets()


def test_the_published_grid_is_that_of_the_paper() -> None:
    plan = read_study("paper-rbfn", ["data=digits"]).runs()
    depths = {m: {r.config.num_layers for r in plan if r.config.method == m} for m in PAPER}
    assert depths["simclr"] == depths["moco"] == {2, 3, 4}
    assert depths["byol"] == depths["swav"] == depths["simsiam"] == {2}
    assert {r.config.num_kernels for r in plan} == {128, 256, 512}
    for run in plan:
        published = PAPER[run.config.method]
        assert all(getattr(run.config, name) == value for name, value in published.items())
        assert run.config.head == "rbfn-paper"


def test_later_groups_win_and_lists_are_ranges() -> None:
    plan = study(
        constants={"data": "digits", "epochs": 1, "base_lr": "1e-3"},
        grid={"epochs": [2, 3]},
        methods={"simclr": {"temperature": [0.1, 0.5]}, "byol": {"epochs": 7}},
        heads=["default"],
        seeds=[3, 4],
    ).runs()
    simclr = [r.config for r in plan if r.config.method == "simclr"]
    assert len(simclr) == 2 * 2 * 2
    assert {c.base_lr for c in simclr} == {1e-3}
    assert {r.config.epochs for r in plan if r.config.method == "byol"} == {7}
    assert {r.config.seed for r in plan} == {3, 4}


def test_exclusions_also_of_what_is_not_spelled_out() -> None:
    rules = [{"head": "rbfn", "base_lr": [0.1, 1]}, {"head": "default", "epochs": 100}]
    plan = study(grid={"base_lr": [0.1, 0.2, 1.0]}, exclude=rules).runs()
    assert [(r.config.head, r.config.base_lr) for r in plan] == [("rbfn", 0.2)]


def test_exclusions_by_seed() -> None:
    plan = study(exclude=[{"head": "rbfn", "seed": 0}], seeds=[0, 1]).runs()
    assert [(r.config.head, r.config.seed) for r in plan] == [
        ("default", 0), ("default", 1), ("rbfn", 1),
    ]  # fmt: skip


def test_a_grid_beyond_all_bounds_is_refused_at_once() -> None:
    many = {name: [i / 1000 for i in range(1, 200)] for name in ("base_lr", "weight_decay")}
    with pytest.raises(ValueError, match=r"has [\d,]{10,} combinations: too many to look at"):
        study(grid=many | {"color_strength": [i / 1000 for i in range(201)]}).runs()


def test_a_sample_is_the_same_every_time_and_nested() -> None:
    grid = {"base_lr": [0.01 * i for i in range(1, 30)]}
    few = study(grid=grid, sample={"runs": 5}, heads=["default"]).runs()
    more = study(grid=grid, sample={"runs": 9}, heads=["default"]).runs()
    other = study(grid=grid, sample={"runs": 5, "seed": 1}, heads=["default"]).runs()
    assert len(few) == 5
    assert {r.id for r in few} < {r.id for r in more}
    assert {r.id for r in few} != {r.id for r in other}


def test_identity_is_of_what_decides_the_result() -> None:
    usual = identity(RunConfig())
    others = {
        "threads": 2, "out": "x", "workers": 3, "accelerator": "cpu", "data_root": "r", "knn": True,
        "loggers": ("wandb",), "save_every": 1, "monitor": ("rankme",), "monitor_every": 2,
        "monitor_unit": "step", "max_bad_images": 3, "compile": "on", "keep": "best",
    }  # fmt: skip
    assert set(others) == set(MACHINE)
    assert all(identity(RunConfig(**{k: v})) == usual for k, v in others.items())
    assert identity(RunConfig(optimizer="sgd", temperature=0.5)) == usual  # SimCLR's defaults
    changed = [RunConfig(seed=1), RunConfig(epochs=9), RunConfig(head="rbfn"), RunConfig(devices=2)]
    assert len({usual, *map(identity, changed)}) == 5
    patient = [RunConfig(patience=2), RunConfig(patience=2, monitor=("rankme",))]  # ends otherwise
    assert len({usual, *map(identity, patient)}) == 3
    folders = [RunConfig(data="folder:/a/x"), RunConfig(data="folder:/b/x")]
    assert identity(folders[0]) == identity(folders[1]) != identity(RunConfig(data="folder:/a/y"))


def test_runs_of_earlier_versions_keep_their_identity() -> None:
    """As 0.1 wrote them: a setting that is new must not have every study trained again."""
    assert identity(RunConfig(data="digits")) == "simclr-default-0-a7cfe29db1"
    assert (
        identity(RunConfig(data="cifar10", method="vicreg", head="rbfn", seed=3))
        == "vicreg-rbfn-3-9e095c8278"
    )
    assert identity(RunConfig(method="vicreg", variance=24.0)) != identity(
        RunConfig(method="vicreg")
    )


def test_identity_does_not_depend_on_the_process() -> None:
    code = "from radial.study.plan import *; print(identity(RunConfig(data='cifar10', seed=5)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == identity(RunConfig(data="cifar10", seed=5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": "red"}, r"unknown keys colour; known: name, preset"),
        ({"grid": {"epochs": []}}, r"the range of epochs is empty"),
        ({"grid": {"epoch": [1]}}, r"unknown settings epoch; known: accelerator"),
        ({"grid": {"base_lr": ["fast"]}}, r"base_lr must be a number, not 'fast'"),
        ({"constants": {"data": "digits", "epochs": [1, 2]}}, r"ranges belong under grid"),
        ({"constants": {}}, r"which data\?"),
        ({"constants": {"data": "digits", "head": "rbfn"}}, r"use heads"),
        ({"methods": {"simclr": {"seed": 5}}}, r"seed is not a setting of a study: use seeds"),
        ({"constants": {"data": 3}}, r"data must be a name, not 3"),
        ({True: 1}, r"unknown keys True"),
        ({"name": "a\ntouch b"}, r"name must be letters"),
        ({"name": "../b"}, r"name must be letters"),
        ({"evaluate": {"protocol": []}}, r"protocol is empty"),
        ({"methods": ["simclear"]}, r"unknown method 'simclear'"),
        ({"methods": {"simclr": 3}}, r"simclr must have settings, not 3"),
        ({"heads": []}, r"at least one seed, method and head"),
        ({"seeds": ["a"]}, r"seed must be an integer"),
        ({"exclude": [{"head": ["default", "rbfn"]}]}, r"no run is left"),
        ({"exclude": [{"heads": "rbfn"}]}, r"unknown settings heads"),
        ({"grid": {"num_kernels": [8, 16]}}, r"simclr with default head: num_kernels is for"),
        ({"evaluate": {"protocols": ["exact"]}}, r"evaluate: unknown protocols; known: batch"),
        ({"evaluate": {"protocol": ["quick"]}}, r"unknown protocol 'quick'"),
        ({"score": {"data": "digits"}}, r"score: unknown data"),
        ({"sample": {"seed": 1}}, r"sample takes runs and seed"),
        ({"version": 2}, r"written by a newer radial \(format 2; this one reads 1\)"),
        ({"grid": [1, 2]}, r"grid must be a dict"),
        (
            {"grid": {"data": ["folder:/a/x", "folder:/b/x"]}, "constants": {}},
            r"cannot be told apart",
        ),
    ],
)
def test_what_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_values(BASE | values).runs()


def test_changes_replace_every_mention() -> None:
    changed = read_study("paper-rbfn", ["num_layers=2", "data=digits", "methods=[moco, byol]"])
    assert {r.config.num_layers for r in changed.runs()} == {2}
    assert {r.config.method for r in changed.runs()} == {"moco", "byol"}
    ranged = read_study("quick", ["epochs=[1, 2]", "seeds=[7]"])
    assert {r.config.epochs for r in ranged.runs()} == {1, 2}


def test_a_written_study_is_the_same_study(tmp_path: Path) -> None:
    import yaml

    for name in presets():
        first = read_study(name, ["data=digits"])
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(first.to_dict(), sort_keys=False))
        assert read_study(tmp_path).runs() == first.runs()


def test_not_yaml(tmp_path: Path) -> None:
    for text in ("a: [", "just words", ""):
        path = tmp_path / "study.yaml"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"is not YAML|holds no settings"):
            read_study(path)
    with pytest.raises(ValueError, match=r"nor one of the presets heads, paper-baseline"):
        read_study("no-such-study")


def test_planning_does_not_wait_for_torch() -> None:
    code = "import sys; from radial.study.plan import *; read_study('heads').runs(); "
    code += "print('torch' in sys.modules or 'pandas' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
