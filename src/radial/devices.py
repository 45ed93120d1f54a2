"""Where networks compute and how precisely, decided here for training, scoring and evaluation.

Networks run on the device, in float32 or less. What needs float64 or takes a matrix apart, neither
of which Apple's GPUs can do, is done on the CPU: features come back to it, see
`radial.evaluation.features`.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from radial.checks import check_choice

if TYPE_CHECKING:  # settings are checked without waiting for torch
    import torch

NAMES = ("auto", "cpu", "cuda", "mps", "gpu")  # gpu: of any make
PRECISIONS = ("32", "bf16", "16")


def device_of(name: str = "auto") -> torch.device:
    """The device of a name, which is there.

    Args:
        name: auto (a GPU where there is one), cpu, cuda, mps, or gpu for one of any make.

    Returns:
        The device; of several of CUDA's the one of this rank (LOCAL_RANK).

    Raises:
        ValueError: an unknown name, or a device that this machine has not.

    Example:
        >>> device_of("cpu")
        device(type='cpu')
    """
    import torch

    check_choice("device", name, NAMES)
    if name in ("auto", "gpu"):
        gpu = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if gpu is None and name == "gpu":
            raise ValueError("no GPU is available here; use auto or cpu")
        name = "cpu" if gpu is None else gpu.type
    elif name != "cpu" and not torch.get_device_module(name).is_available():
        raise ValueError(f"device {name} is not available here; use auto or cpu")
    return torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name)


def check_precision(precision: str, device: torch.device) -> None:
    """Raise where a device cannot compute as asked."""
    check_choice("precision", precision, PRECISIONS)
    if precision == "16" and device.type == "cpu":
        raise ValueError("precision 16 needs a GPU; use bf16 or 32")


def lowered(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which networks compute in a precision: torch's autocast, or nothing for 32."""
    import torch

    check_precision(precision, device)
    if precision == "32":
        return nullcontext()
    kind = torch.bfloat16 if precision == "bf16" else torch.float16
    return torch.autocast(device.type, dtype=kind)
