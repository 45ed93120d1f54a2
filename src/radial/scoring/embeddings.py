"""Embeddings that others computed: (N, D) of images, (n, q, D) of q views of each.

Files: ``.npy``, ``.npz``, ``.parquet``; ``.pt`` and ``.safetensors`` where they hold embeddings and
no network. Nothing of a file is run: arrays of objects are refused.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from radial.checkpoints import SUFFIXES, read_content
from radial.checks import needs

NAMES = {"features", "embeddings", "embedding", "views", "feats", "x", "z", "image_embeds"}
BESIDE = {"labels", "label", "targets", "ids", "id", "paths", "names", "filenames", "y"}
MOST = 2**36  # bytes that arrays may unpack to
RATIO = 200  # by which a compressed archive may be smaller than what it holds


def read_embeddings(path: Path) -> dict[str, Tensor] | None:
    """Features (N, D) and views (n, q, D) of a file, whichever it holds.

    Args:
        path: a file of any kind.

    Returns:
        ``features`` or ``views`` or both, float32; None for a file that holds no embeddings but,
        perhaps, a network.

    Raises:
        ValueError: it is damaged, or holds arrays of another shape.
    """
    kind = path.suffix.lower()
    if kind in (".npy", ".npz", ".parquet"):
        try:
            found: Any = {".npy": _npy, ".npz": _npz, ".parquet": _parquet}[kind](path)
        except (PermissionError, ModuleNotFoundError):
            raise
        except Exception as error:  # damaged bytes raise nearly anything
            why = f": {error}" if isinstance(error, _Unfit) else ""
            raise ValueError(f"{path} is damaged or holds no embeddings{why}") from error
        return _sorted(path, found)
    if kind not in SUFFIXES or kind == ".ckpt":
        return None
    content, metadata = read_content(path)
    if isinstance(content, Tensor):
        return _sorted(path, {"": content})
    if not isinstance(content, Mapping) or metadata:
        return None
    held = {str(key) for key in content}
    if not held & NAMES or held - NAMES - BESIDE:
        return None
    return _sorted(path, {k: v for k, v in content.items() if k in NAMES})


class _Unfit(ValueError):
    """Arrays that are whole and yet no embeddings."""


def _npy(path: Path) -> dict[str, Any]:
    return {"": np.load(path, mmap_mode="r", allow_pickle=False)}


def _npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > min(MOST, RATIO * path.stat().st_size):
        raise _Unfit(f"it unpacks to {unpacked / 2**30:.1f} GiB")
    with np.load(path, allow_pickle=False) as archive:
        chosen = [name for name in archive.files if name in NAMES] or [
            name for name in archive.files if name not in BESIDE
        ]
        return {name: archive[name] for name in chosen}


def _parquet(path: Path) -> dict[str, Any]:
    """One column of lists (or of lists of lists: views), or a column of numbers each dimension."""
    needs("study", "pyarrow")
    from pyarrow import parquet, types

    table = parquet.read_table(path)
    lists = [f.name for f in table.schema if types.is_list(f.type) or _fixed(f.type)]
    if lists:
        return {name: np.array(table.column(name).to_pylist(), dtype=np.float32) for name in lists}
    numbers = [f.name for f in table.schema if types.is_floating(f.type)]
    columns = [table.column(name).to_numpy() for name in numbers if name.lower() not in BESIDE]
    if not columns:
        raise _Unfit("no column of lists or of numbers")
    return {"features": np.stack(columns, axis=1)}


def _fixed(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_fixed_size_list(kind) or types.is_large_list(kind))


def _sorted(path: Path, arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, array in arrays.items():
        value = torch.as_tensor(np.array(array)) if not isinstance(array, Tensor) else array
        place = {2: "features", 3: "views"}.get(value.dim())
        shape = f"{name or 'its array'} {tuple(value.shape)} of {value.dtype}"
        if place is None or min(value.shape) < 1 or value.is_complex():
            raise ValueError(f"{path}: expected (N, D) or (n, q, D), found {shape}")
        if place in found:
            raise ValueError(f"{path} holds more than one array of {place}: {', '.join(arrays)}")
        if place == "views" and value.shape[1] < 2:
            raise ValueError(f"{path}: views (n, q, D) need at least two an image, found {shape}")
        value = value.detach().float()
        if not bool(value.isfinite().all()):
            raise ValueError(f"{path}: {name or place} has NaN or inf")
        found[place] = value
    if not found:
        raise ValueError(f"{path} holds no embeddings: expected (N, D) or (n, q, D)")
    return found
