"""Two processes with half a batch each do what one process does with all of it.

Every case runs in one pair of gloo processes, as DistributedDataParallel on CPU, in float64,
for three steps of SGD. torch's SyncBatchNorm refuses CPU tensors, so the workers use the
stand-in below; the one process keeps torch's own BatchNorm.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from method_cases import build, given, views
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from radial import RBFNProjectionHead, calibrate
from radial.methods import METHODS, Method

WORLD, BATCH = 2, 4  # samples a rank
PROGRESS = (0.0, 0.4, 0.8)  # prototypes are frozen in the first step
CASES = [(name, head) for name in METHODS for head in ("default", "rbfn")]
OPTIONS: dict[str, dict[str, Any]] = {
    "moco": {"queue_size": 20},  # wraps in the third step
    "swav": {"queue_size": 16},  # joins in the third step
    "nnclr": {"queue_size": 20},
}
TIMEOUT = 120.0


class TotalOverRanks(torch.autograd.Function):
    """The sum over ranks. Each rank's loss depends on it, so its gradient is summed too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total


class GlobalBatchNorm(nn.Module):
    """A BatchNorm over the batches of all ranks, with the names of the one it replaces."""

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.momentum, self.eps = norm.momentum, norm.eps
        for name, value in norm.named_buffers():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        columns = x.movedim(1, -1).flatten(0, -2)  # (N, C)
        n = len(columns) * WORLD
        mean = TotalOverRanks.apply(columns.sum(0)) / n
        variance = TotalOverRanks.apply((columns - mean).square().sum(0)) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / (n - 1), self.momentum)
            self.num_batches_tracked += 1
        y = (x.movedim(1, -1) - mean) / torch.sqrt(variance + self.eps)
        if self.weight is not None:
            y = y * self.weight + self.bias
        return y.movedim(-1, 1)


def with_global_batch_norm(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            setattr(module, name, GlobalBatchNorm(child))
        else:
            with_global_batch_norm(child)


def global_views(name: str, index: int) -> list[Tensor]:
    count = 4 if name in ("swav", "dino") else 2
    return views(WORLD * BATCH, count, seed=100 + index, dtype=torch.float64)


def train(method: Method, forward: nn.Module, rank: int | None) -> dict[str, Any]:
    """Three steps on this rank's rows (None: on all). Losses, gradients and the last state."""
    parameters = [p for p in method.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    rows = slice(None) if rank is None else slice(rank * BATCH, (rank + 1) * BATCH)
    losses, gradients = [], []
    for index, progress in enumerate(PROGRESS):
        optimizer.zero_grad()
        x = [view[rows] for view in global_views(method.name, index)]
        labels = given(method.name, len(x[0]), start=(rank or 0) * BATCH)
        loss = forward(x, progress, **labels).loss
        loss.backward()
        method.after_backward(progress)
        gradients.append(
            {k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None}
        )
        losses.append(loss.item())
        optimizer.step()
        method.after_step(progress)
    return {"losses": losses, "gradients": gradients, "state": method.state_dict()}


def different_features(rank: int) -> Tensor:
    return torch.rand(64, 16, generator=torch.Generator().manual_seed(rank)) * (1 + rank)


def small_head(seed: int) -> RBFNProjectionHead:
    torch.manual_seed(seed)
    return RBFNProjectionHead(16, 32, 8, num_kernels=8)


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=WORLD)
    results: dict[str, Any] = {}
    for name, head in CASES:
        method: Any = build(name, head, **OPTIONS.get(name, {})).double()
        with_global_batch_norm(method)
        seen: list[Tensor] = []
        if name == "moco":
            method.key_backbone.register_forward_pre_hook(lambda _, x, to=seen: to.append(x[0]))
        torch.manual_seed(rank)  # no two ranks draw alike
        results[f"{name}-{head}"] = train(method, DistributedDataParallel(method), rank)
        results[f"{name}-{head}"]["seen"] = seen
    results["calibrated"] = calibrate(small_head(rank), different_features(rank)).state_dict()
    torch.save(results, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes saved."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.spawn(worker, args=(str(folder),), nprocs=WORLD, join=False)
    deadline = time.monotonic() + TIMEOUT
    try:
        while not context.join(timeout=1.0):  # raises what a worker raised
            if time.monotonic() > deadline:
                pytest.fail(f"the two processes took more than {TIMEOUT:.0f} s")
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(Path(folder, f"{rank}.pt"), weights_only=True) for rank in range(WORLD)]


def check_equal(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            ours[key], value, rtol=1e-5, atol=1e-9, msg=lambda text, k=key: f"{k}: {text}"
        )


@pytest.mark.parametrize(("name", "head"), CASES)
def test_two_processes_are_one(name: str, head: str, ranks: list[dict[str, Any]]) -> None:
    method = build(name, head, **OPTIONS.get(name, {})).double()
    expected = train(method, method, None)
    cases = [rank[f"{name}-{head}"] for rank in ranks]
    losses = torch.tensor([case["losses"] for case in cases], dtype=torch.float64).mean(0)
    torch.testing.assert_close(losses.tolist(), expected["losses"], rtol=1e-5, atol=0.0)
    for case in cases:
        for ours, theirs in zip(case["gradients"], expected["gradients"]):
            check_equal(ours, theirs)
        check_equal(case["state"], expected["state"])


@pytest.mark.parametrize(("name", "head"), [case for case in CASES if case[0] in OPTIONS])
def test_queues_are_the_same_on_both_ranks(
    name: str, head: str, ranks: list[dict[str, Any]]
) -> None:
    one, two = (rank[f"{name}-{head}"]["state"] for rank in ranks)
    assert torch.equal(one["queue.rows"], two["queue.rows"])
    assert int(one["queue.pointer"]) == int(two["queue.pointer"]) == len(PROGRESS) * WORLD * BATCH


@pytest.mark.parametrize("head", ["default", "rbfn"])
def test_moco_keys_see_the_batch_shuffled_over_ranks(
    head: str, ranks: list[dict[str, Any]]
) -> None:
    mixed = False
    for index in range(len(PROGRESS)):
        keys = global_views("moco", index)[1].flatten(1)
        seen = [rank[f"moco-{head}"]["seen"][index].flatten(1) for rank in ranks]
        owners = torch.cat(seen).unsqueeze(1).eq(keys).all(2).int().argmax(1)
        assert sorted(owners.tolist()) == list(range(WORLD * BATCH))  # each image once
        mixed |= bool((owners[:BATCH] >= BATCH).any())
    assert mixed


def test_calibrate_gives_rank_0s_head_though_features_differ(ranks: list[dict[str, Any]]) -> None:
    expected = calibrate(small_head(0), different_features(0)).state_dict()
    assert all(torch.equal(value, ranks[1]["calibrated"][k]) for k, value in expected.items())
    assert all(torch.equal(value, ranks[0]["calibrated"][k]) for k, value in expected.items())
    other = calibrate(small_head(0), different_features(1)).state_dict()
    assert not all(torch.equal(value, expected[key]) for key, value in other.items())
