"""Networks that come as programs: ONNX graphs, TorchScript, and factories of the user's.

An ONNX graph is data for onnxruntime's own operators. TorchScript and a factory run code that
comes with the model, so they want their prefix, ``torchscript:`` and ``py:``.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.checks import needs, one_line
from radial.data.preprocessing import IMAGENET, Preprocess
from radial.scoring.networks import Asked, Network, Take, from_tokens, taken


class Onnx(nn.Module):
    """An ONNX graph with one input of images, run on the CPU; (B, 3, S, S) → its output."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised; its log would be a second line
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        whole = hashlib.sha256(path.read_bytes()).digest()
        # What tells this network from another where features are cached.
        self.register_buffer("digest", torch.frombuffer(bytearray(whole), dtype=torch.uint8))
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape or ()) != 4:
            shapes = ", ".join(f"{one.name} {one.shape}" for one in inputs)
            raise ValueError(f"it takes {shapes}, not one batch of images (B, 3, H, W)")
        self._input = inputs[0]
        outputs = {one.name: one for one in self._session.get_outputs()}
        pooled = (name for name in ("pooler_output", "image_embeds") if name in outputs)
        self._output = next(pooled, next(iter(outputs)))

    @property
    def size(self) -> int | None:
        """The side it takes, where only one is."""
        side = self._input.shape[-1]
        return side if isinstance(side, int) and side > 0 else None

    def forward(self, images: Tensor) -> Tensor:
        """The output of each image; batches are cut and filled where the graph wants one size."""
        most = self._input.shape[0]
        step = most if isinstance(most, int) and most > 0 else len(images)
        kind = torch.float16 if self._input.type == "tensor(float16)" else torch.float32
        found = []
        for part in images.split(step):
            filled = torch.cat([part, part[-1:].expand(step - len(part), -1, -1, -1)])
            given = filled.to("cpu", kind).contiguous().numpy()
            (out,) = self._session.run([self._output], {self._input.name: given})
            found.append(torch.from_numpy(out)[: len(part)].float())
        return torch.cat(found).to(images.device)


def from_onnx(name: str, asked: Asked) -> Network:
    """A network in an ``.onnx`` file, of fixed or free batch.

    Args:
        name: the file.
        asked: size and features; of maps and tokens cls or mean (auto: pooled where it is a
            vector, else mean).

    Raises:
        ValueError: it is damaged, or takes something other than images.
    """
    needs("onnx", "onnxruntime")
    try:
        with redirect_stdout(io.StringIO()):  # where it tells of its retries
            module = Onnx(Path(name).expanduser())
    except PermissionError:
        raise
    except Exception as error:  # onnxruntime's own kinds of errors, and damaged bytes
        raise ValueError(f"{name}: not read by onnxruntime: {one_line(error)}") from error
    return _program(module, name, asked, module.size, "the file")


def from_torchscript(name: str, asked: Asked) -> Network:
    """A TorchScript archive: its code runs in TorchScript's interpreter, on this prefix alone.

    Args:
        name: what stands behind ``torchscript:``, a file.
        asked: size and features.

    Raises:
        ValueError: it is damaged or no TorchScript.
    """
    try:
        with warnings.catch_warnings():  # that TorchScript is deprecated is not the user's fault
            warnings.simplefilter("ignore")
            module = torch.jit.load(str(Path(name).expanduser()), map_location="cpu")
    except Exception as error:  # damaged bytes raise nearly anything
        raise ValueError(f"{name} is damaged or no TorchScript: {one_line(error)}") from error
    return _program(module.eval(), name, asked, None, "the file")


def from_factory(name: str, asked: Asked) -> Network:
    """``package.module:factory``: a function of the user's, called without arguments.

    Args:
        name: what stands behind ``py:``; the current directory is searched, too. The factory
            returns a module, or a pair of it and its transform (PIL image to tensor).
        asked: size and features.

    Raises:
        ValueError: it is not found, fails, or returns something else.
    """
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise ValueError(f"py:{name} must be py:MODULE:FACTORY, such as py:models:build")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        factory: Callable[[], Any] = getattr(importlib.import_module(place), attribute)
        made = factory()
    except Exception as error:  # whatever the user's code raises
        kind = type(error).__name__
        raise ValueError(f"py:{name} failed: {kind}: {one_line(error)}") from error
    module, transform = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module):
        raise ValueError(f"py:{name} gave a {type(module).__name__}, not a torch.nn.Module")
    network = _program(module.eval(), f"py:{name}", asked, None, "the factory")
    if transform is None:
        return network
    seen = Preprocess(size=network.preprocess.size, transform=transform)
    return Network(
        name=network.name,
        backbone=network.backbone,
        preprocess=seen,
        features=network.features,
        cached=False,
    )


def _program(module: nn.Module, name: str, asked: Asked, own: int | None, where: str) -> Network:
    size = own or asked.size or asked.data_size
    label = name if name.startswith("py:") else Path(name).name
    note = f"normalised with ImageNet's mean and std, which {where} does not record"
    tries = [224] if own is None and asked.size is None and size != 224 else []
    for side in (size, *tries):  # a graph may take one size without saying which
        try:
            with torch.no_grad():
                found = module(torch.zeros(2, 3, side, side))
            break
        except Exception as error:  # what is wrong inside a program is known to it alone
            failed = error
    else:
        line = f"{name} does not take images of {size} px: {one_line(failed)}"
        raise ValueError(line) from failed
    if not isinstance(found, Tensor) or found.dim() not in (2, 3, 4) or len(found) != 2:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"{name} gives {shape} for two images, not one row of features each")
    offered: dict[str, Take | None] = {"pooled": None}
    if found.dim() == 3:
        offered = {how: partial(_of_tokens, how=how) for how in ("mean", "cls")}
    elif found.dim() == 4:
        offered = {"mean": _of_map}
    backbone, features = taken(module, name, asked.features, offered, next(iter(offered)))
    preprocess = Preprocess(size=side, mean=IMAGENET[0], std=IMAGENET[1], source="assumed")
    return Network(
        name=label, backbone=backbone, preprocess=preprocess, features=features, notes=(note,)
    )


def _of_tokens(module: nn.Module, images: Tensor, *, how: str) -> Tensor:
    return from_tokens(module(images), how, 0)


def _of_map(module: nn.Module, images: Tensor) -> Tensor:
    found: Tensor = module(images)
    return found.mean((2, 3))
