"""Compiled networks: the same run but for rounding, resumed bit for bit, never in the way."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from radial.methods import METHODS
from radial.training import compilation
from radial.training.build import build
from radial.training.compilation import compile_networks
from radial.training.module import Run
from radial.training.run import resume, train
from radial.training.rundir import read_config, read_result

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, on the way through its compiler


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADIAL_DATA", str(cache))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache / "compiled"))
    counters.clear()


def state(directory: Path) -> dict[str, torch.Tensor]:
    return torch.load(directory / "last.ckpt", weights_only=True)["state_dict"]


class PowerCut(Exception):
    pass


def test_compiled_is_the_same_run_and_resumes_bit_for_bit(config, tmp_path, monkeypatch):
    def make(name: str, how: str):
        return config(head="rbfn", compile=how, out=str(tmp_path / name), epochs=2, knn=True)

    eager = train(make("eager", "off"))
    whole = train(make("whole", "on"))
    graphs = counters["stats"]["unique_graphs"]
    assert graphs == 2, "a backbone and a head, in training alone"
    assert not counters["graph_break"]
    assert eager.train_loss == pytest.approx(whole.train_loss, rel=0.01)  # rounding grows
    assert eager.knn is not None
    assert whole.knn is not None
    step, cut_at = Run.training_step, whole.steps // 2 + 1

    def cut(self, batch, number):
        if self.global_step == cut_at:
            raise PowerCut
        return step(self, batch, number)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "training_step", cut)
        with pytest.raises(PowerCut):
            train(make("cut", "on"))
    torch.compiler.reset()  # as in a new process, from the cache on disk
    again = resume(tmp_path / "cut")
    assert counters["inductor"]["fxgraph_cache_hit"] > 0
    one, other = state(tmp_path / "whole"), state(tmp_path / "cut")
    assert one.keys() == other.keys() == state(tmp_path / "eager").keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert again.train_loss == whole.train_loss
    assert read_config(tmp_path / "cut").compile == "on"


@pytest.mark.parametrize(
    "method", ["dino", *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS if m != "dino")]
)
def test_a_compiled_step_is_the_eager_one_but_for_rounding(method, config):
    parts = build(config(method=method))
    labels = [torch.arange(16) % 2] if parts.method.labelled else []
    views = [torch.randn(16, 3, view.size, view.size) for view in parts.views]
    plain = copy.deepcopy(parts.method)
    compile_networks(parts.method)
    for network in (plain, parts.method):
        network(views, 0.0, *labels).loss.backward()
        network.after_step(0.5)
    assert counters["stats"]["unique_graphs"] >= 2
    assert not counters["graph_break"]
    compiled = dict(parts.method.named_parameters())
    for name, parameter in plain.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(
                compiled[name].grad, parameter.grad, rtol=1e-3, atol=1e-4, msg=name
            )
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(parts.method.state_dict()[name], value, msg=name)


def test_without_a_compiler_it_says_so_and_goes_on(config, tmp_path):
    settings = config(compile="on", epochs=1)
    code = f"from radial import RunConfig, train; train(RunConfig(**{settings.to_dict()!r}))"
    nothing = {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "empty")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | nothing, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "not compiled" in line]
    assert len(told) == 1
    assert all(line.startswith(("radial: ", "epoch ")) for line in done.stderr.splitlines())
    assert read_config(settings.directory).compile == "off"
    assert read_result(settings.directory).steps > 0


@pytest.mark.parametrize(("compiled", "pays"), [(1.0, True), (12.0, False)])
def test_auto_compiles_where_the_steps_repay_it(config, monkeypatch, compiled, pays):
    """A step takes ten seconds eagerly, and so many compiled."""
    parts = build(config(method="simclr", head="rbfn", compile="auto"))
    before = {name: value.clone() for name, value in parts.method.state_dict().items()}
    told: list[str] = []
    ends = iter([10.0, 10.0] * 2 + [compiled] * 3)
    clock = (time for end in ends for time in (0.0, end))
    monkeypatch.setattr(compilation, "perf_counter", lambda: next(clock))  # not the compiler's

    def worth(steps: int) -> bool:
        return compilation.worth_compiling(
            parts.config,
            parts.method,
            parts.views,
            steps=steps,
            device="cpu",
            context=nullcontext,
            tell=told.append,
        )

    assert not worth(1)
    assert told == [], "a short run compiles nothing"
    assert worth(1000) is pays
    assert told == ["compiling the networks"]
    after = parts.method.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_runs_of_before_resume_as_they_were(config):
    settings = config(epochs=1)
    train(settings)
    path = settings.directory / "config.yaml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("compile:")))
    resume(settings.directory, epochs=2)
    assert read_config(settings.directory).compile == "off"
