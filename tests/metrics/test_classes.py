"""torchmetrics classes: each is its function of all batches, in one process and over two."""

from __future__ import annotations

import inspect
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import multiprocessing as mp
from torchmetrics import Metric, MetricCollection

from radial import metrics
from radial.metrics import classes
from radial.metrics.registry import SCORES
from radial.metrics.scores import Scores

NAMES = [
    name
    for name, kind in vars(classes).items()
    if inspect.isclass(kind) and issubclass(kind, Metric) and hasattr(kind, "of")
]
SCORE = {"LiDAR": "lidar", "RankMe": "rankme", "NESum": "nesum", "ACR": "acr",
         "InfoNCE": "info_nce"}  # fmt: skip


def score_of(name: str) -> str:
    """RankMe → rankme, ViewRetrieval → view_retrieval."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_")
    return SCORE.get(name, words)


def batches(name: str, count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    size = (12, 8) if getattr(classes, name).dimensions == 2 else (12, 3, 8)
    return [torch.randn(size, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_score_of_the_registry(name: str) -> None:
    metric, info = getattr(metrics, name)(), SCORES[score_of(name)]
    parts = batches(name)
    for part in parts:
        metric.update(part)
    kind = "features" if metric.dimensions == 2 else "views"
    scores = Scores([f"{info.name}@backbone"], repeats=0)
    for _ in range(2):  # what was forgotten does not count
        scores.reset()
        scores.update("backbone", **{kind: torch.cat(parts)})
    (found,) = scores.compute()
    assert float(metric.compute()) == found.value
    assert metric.higher_is_better is (info.better == "higher")
    assert float(pickle.loads(pickle.dumps(metric)).compute()) == found.value
    metric.reset()
    metric.update(parts[0])
    assert float(metric.compute()) != found.value


def test_options_of_the_function_and_of_torchmetrics() -> None:
    (views,) = batches("ViewRetrieval", 1)
    metric = metrics.ViewRetrieval(whiten=False, top1=True, compute_on_cpu=True)
    metric.update(views)
    assert float(metric.compute()) == metrics.view_retrieval(views, whiten=False, top1=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `whitened`"):
        metrics.ViewRetrieval(whitened=False)
    with pytest.raises(ValueError, match=r"a batch must be \(b, q, D\), not \(12, 8\)"):
        metric.update(views[:, 0])


def test_several_at_once() -> None:
    together = MetricCollection([metrics.LiDAR(), metrics.Alignment(), metrics.ViewRetrieval()])
    for part in batches("LiDAR"):
        together.update(part)
    found = together.compute()
    whole = torch.cat(batches("LiDAR"))
    assert float(found["Alignment"]) == metrics.alignment(whole)
    assert float(found["ViewRetrieval"]) == metrics.view_retrieval(whole)


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    init = f"file://{folder}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
    found = {}
    for name in NAMES:
        metric = getattr(metrics, name)()
        for part in batches(name)[2 * rank : 2 * rank + 2 - rank]:  # two batches, and one
            metric.update(part)
        found[name] = float(metric.compute())
    Path(folder, f"{rank}.txt").write_text(repr(found))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_over_two_processes_as_over_one(tmp_path: Path) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.spawn(_rank, (str(tmp_path),), nprocs=2)
    first, second = (eval(Path(tmp_path, f"{rank}.txt").read_text()) for rank in range(2))
    assert first == second
    for name in NAMES:
        metric = getattr(metrics, name)()
        metric.update(torch.cat(batches(name)[:3]))
        assert first[name] == float(metric.compute()), name
