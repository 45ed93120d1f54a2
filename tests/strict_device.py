"""A GPU where there is none: a device of torch's that refuses what Apple's GPUs refuse.

Tensors on it are wrappers around tensors on the CPU, which compute; every call of torch passes
through one function, which refuses

- float64 on the device;
- tensors of the device and of the CPU in one operation (numbers without dimensions and indices on
  the CPU may be there, as torch allows it);
- decompositions of matrices, which MPS does not have.

It registers torch's "privateuseone" backend, which cannot be undone: use it in a process of its
own. ``python tests/strict_device.py DIR simclr`` trains, scores and evaluates on it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

from radial.cli import main as radial
from radial.data.views import Parameters
from radial.training import module

NAME = "strict"
aten = torch.ops.aten
# May take tensors of both: they move values from one to the other, or index by the CPU's.
BETWEEN = ("copy_", "_to_copy", "index", "index_put_", "_index_put_impl_", "index_put")
LACKING = (
    "_linalg_eigh", "_linalg_svd", "_linalg_eigvals", "linalg_qr", "linalg_lstsq", "geqrf",
    "linalg_eig", "_linalg_slogdet",
)  # fmt: skip

calls: dict[str, int] = {}  # operations on the device, by name


class Refused(BaseException):
    """What a GPU would not have done; nothing that catches errors catches it."""


class OnDevice(torch.Tensor):
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnDevice:
        wrapper: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )
        wrapper.inner = inner
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})

    def __reduce_ex__(self, protocol: Any) -> Any:  # checkpoints are read to the CPU
        return self.detach().inner.__reduce_ex__(protocol)


class Device(TorchDispatchMode):
    """Sees what no argument on the device shows: new tensors, and moves onto it."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})


def run(op: Any, args: Any, kwargs: Any) -> Any:
    name = op.overloadpacket.__name__
    given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
    on_device = any(isinstance(a, OnDevice) for a in given)
    asked = kwargs.get("device")
    target = on_device if asked is None else torch.device(asked).type == NAME
    if on_device and name not in BETWEEN:
        for other in given:
            if not isinstance(other, OnDevice) and other.dim():
                raise Refused(f"{name}: {tuple(other.shape)} on the CPU beside {NAME}")
    if name in ("index", "index_put_", "_index_put_impl_", "index_put"):
        whole, rest = args[0], [*args[1], *args[2:3]]
        for other in rest:
            if isinstance(other, OnDevice) and not isinstance(whole, OnDevice):
                raise Refused(f"{name}: {NAME} indexes a tensor on the CPU")
    if on_device and name in LACKING:
        raise Refused(f"{name} is not there on {NAME}")
    if on_device or target:
        calls[name] = calls.get(name, 0) + 1

    def unwrapped(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.inner if isinstance(value, OnDevice) else value

    known = {id(a.inner): a for a in given if isinstance(a, OnDevice)}

    def wrapped(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, OnDevice):
            return value
        if value.dtype in (torch.float64, torch.complex128):
            raise Refused(f"{name}: {value.dtype} on {NAME}")
        return known[id(value)] if id(value) in known else OnDevice(value)  # else: in place

    out = op(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs))
    if name == "copy_" and not isinstance(args[0], OnDevice):
        return args[0]
    return tree_map(wrapped, out) if target else out


class _Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def synchronize(self, device: Any = None) -> None:
        pass


def register() -> None:
    """Make it the accelerator of this process, for torch and for Lightning."""
    from pytorch_lightning.accelerators import Accelerator, AcceleratorRegistry
    from pytorch_lightning.strategies import SingleDeviceStrategy
    from pytorch_lightning.trainer.connectors.accelerator_connector import _AcceleratorConnector

    class Strict(Accelerator):
        def setup_device(self, device: torch.device) -> None:
            assert device.type == NAME

        def teardown(self) -> None:
            pass

        @staticmethod
        def parse_devices(devices: Any) -> int:
            return int(devices)

        @staticmethod
        def get_parallel_devices(devices: int) -> list[torch.device]:
            return [torch.device(NAME, i) for i in range(devices)]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return NAME

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return {}

    _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    AcceleratorRegistry.register(NAME, Strict)
    place = torch.device(
        NAME, 0
    )  # Lightning knows the devices of no other accelerator than its own
    _AcceleratorConnector._choose_strategy = lambda _: SingleDeviceStrategy(device=place)
    library = torch.library.Library("_", "IMPL")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    own = torch.library.Library("aten", "IMPL")  # where C++ makes tensors past every mode
    empty = aten.empty_strided.default
    own.impl(empty, lambda *args, **kwargs: run(empty, args, kwargs), "PrivateUse1")
    own.impl(
        aten._copy_from.default,
        lambda x, to, wait=False: run(aten.copy_.default, (to, x), {}),
        "PrivateUse1",
    )
    _kept.extend([library, own])


_kept: list[Any] = []  # a library ends with its object


def commands(work: Path, method: str) -> dict[str, list[str]]:
    """A small run, a table with it and with fitted kernels, and what labels say of it."""
    run, model = str(work / method), "resnet9-w0.125@none"
    few = ["--images", "64", "--view-images", "64", "--views", "2", "--repeats", "0"]
    size = "--epochs 1 --batch-size 256 --backbone resnet9-w0.125 --hidden-dim 32 --threads 1"
    head = "--output-dim 16 --head rbfn --num-kernels 16 --knn"
    head = "--knn" if method == "supervised" else head
    watch = "" if method == "supervised" else "sns_width,kernel_rank,"
    return {
        "train": ["train", "--method", method, *size.split(), *head.split(), "--out", run,
                  "--overwrite", "--monitor", f"{watch}rankme,arc,rotation_probe"],
        "score": ["score", run, model, "--fit-head", "--data", "digits", "--no-cache", *few],
        "bf16": ["score", run, "--data", "digits", "--no-cache", "--precision", "bf16", *few],
        "eval": ["eval", run, "--data", "digits", "--no-cache"],
    }  # fmt: skip


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Our code with a mistake in it that a machine without a GPU does not notice."""
    spread = module.embedding_spread
    place, attribute, mistake = {
        "float64": (module, "embedding_spread", lambda z: spread(z.double())),
        "mixed": (Parameters, "to", lambda self, device: self),
        "linalg": (module, "embedding_spread", lambda z: torch.linalg.svdvals(z).sum()),
    }[name]
    right = getattr(place, attribute)
    setattr(place, attribute, mistake)
    try:
        yield
    finally:
        setattr(place, attribute, right)


def main(work: Path, methods: Sequence[str]) -> dict[str, Any]:
    """Each command's exit code and convolutions on the device; what became of mutants."""
    told: dict[str, Any] = {}
    with Device():
        for method in methods:
            for name, words in commands(work, method).items():
                calls.clear()
                code = radial(words)
                told[f"{method} {name}"] = {"code": code, "convolutions": calls["convolution"]}
        for name in ("float64", "mixed", "linalg"):
            try:
                with mutated(name):
                    radial(commands(work, "simclr")["train"])
                told[name] = "passed"
            except Refused as error:
                told[name] = str(error)
    return told


if __name__ == "__main__":
    register()
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
