"""Features on disk, found again by all that they depend on.

Features of a large dataset take minutes, scores of them seconds: the second look at a
checkpoint should not wait for the first one's work.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import radial
from radial.checks import check_number
from radial.data.images import Files, Images
from radial.files import cache_folder, write_atomically

GIB = 2**30

_FORMAT = 2  # to be raised when the same key would stand for other features
_SUFFIX = ".safetensors"
_CHUNK = 512  # images hashed at a time


class Cache:
    """A folder of features, one file a key; beyond ``limit`` bytes the least recently used go.

    Nothing in it is needed: a file that is damaged or of another format counts as absent, and
    a folder that cannot be written to is told of in a warning.
    """

    def __init__(self, folder: Path | str, *, limit: float = 8 * GIB) -> None:
        check_number("limit", limit)
        self.folder = Path(folder).expanduser()
        self.limit = limit

    def get(self, key: str) -> dict[str, Tensor] | None:
        """The tensors of a key, exactly as they were put there, or None."""
        from safetensors import safe_open

        path = self._path(key)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                checksum = (file.metadata() or {}).get("sha256")
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except Exception:  # damaged bytes raise nearly anything
            return None
        if checksum != _checksum(tensors):
            return None
        with suppress(OSError):
            os.utime(path)  # used last, now
        return tensors

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save

        if sum(tensor.nbytes for tensor in tensors.values()) > self.limit:
            return
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        path = self._path(key)
        try:
            write_atomically(path, save(whole, {"sha256": _checksum(whole)}))
            self._make_room()
        except OSError as error:
            warnings.warn(f"cannot keep features in {self.folder}: {error}", stacklevel=2)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _make_room(self) -> None:
        """Remove what was used longest ago; also parts that a killed process left behind."""
        files = []
        for path in self.folder.glob(f"*{_SUFFIX}*"):
            with suppress(FileNotFoundError):  # another process makes room, too
                stat = path.stat()
                files.append((stat.st_mtime_ns, path, stat.st_size))
        excess = sum(size for _, _, size in files) - self.limit
        for _, path, size in sorted(files):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def default_cache() -> Cache:
    """In the folder of the datasets: RADIAL_DATA, else ``~/.cache/radial``."""
    return Cache(cache_folder() / "features")


def cache_key(
    modules: Sequence[nn.Module | None], images: Images, settings: Mapping[str, Any]
) -> str:
    """SHA-256 of what features depend on: modules, images in their order, and JSON settings.

    Of modules all tensors count, and each submodule's class, printed form and plain attributes
    (numbers, strings, tuples of them), since a forward pass may depend on them; its code does
    not. Of images in memory the pixels count, of files their folder, names, sizes and times.
    The versions of radial and torch count, too: another one may prepare images or round otherwise.
    """
    versions = f"{radial.__version__} {torch.__version__}"
    digest = hashlib.sha256(f"{_FORMAT} {versions}\n".encode())
    digest.update(json.dumps(settings, sort_keys=True).encode())
    for module in modules:
        digest.update(b"\nmodule\n")
        if module is not None:
            _add_module(digest, module)
    digest.update(b"\nimages\n")
    _add_images(digest, images)
    return digest.hexdigest()


def _add_module(digest: Any, module: nn.Module) -> None:
    values: dict[str, Any] = dict(module.named_buffers()) | module.state_dict()
    for name, part in module.named_modules():
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        own = {key: value for key, value in vars(part).items() if not key.startswith("_")}
        plain = {key: own[key] for key in sorted(own) if key != "training" and _plain(own[key])}
        digest.update(f"{name}\0{kind}\0{part.extra_repr()}\0{plain}\n".encode())
        values |= {f"{name}.{key}": own[key] for key in own if isinstance(own[key], Tensor)}
    _add_values(digest, values)


def _plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _add_values(digest: Any, values: Mapping[str, Any]) -> None:
    for name in sorted(values):
        value = values[name]
        if isinstance(value, Tensor):
            digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\n".encode())
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy())
        else:  # what get_extra_state() of a module gives
            digest.update(f"{name}\0{value!r}\n".encode())


def _add_images(digest: Any, images: Images) -> None:
    store, rows = images._store, images.index
    if isinstance(store, Tensor):
        shape = tuple(store.shape[1:])
        digest.update(f"pixels\0{len(rows)}\0{shape}\0{images.stored_size}\n".encode())
        for chunk in rows.split(_CHUNK):
            digest.update(store[chunk].numpy())
        return
    if not isinstance(store, Files):  # read again, once more than its features need
        digest.update(f"read\0{len(rows)}\0{images.stored_size}\n".encode())
        for start in range(0, len(rows), _CHUNK):
            chunk = range(start, min(start + _CHUNK, len(rows)))
            digest.update(images.__getitems__(chunk).numpy())
        return
    digest.update(f"files\0{len(rows)}\0{images.stored_size}\0".encode())
    digest.update(os.fsencode(store.root.resolve()))
    for row in rows.tolist():
        try:
            stat = os.stat(store.path(row))
            known = f"{stat.st_size} {stat.st_mtime_ns}"
        except OSError:
            known = "gone"
        digest.update(b"\n" + os.fsencode(store.name(row)) + f"\0{known}".encode())


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    _add_values(digest, tensors)
    return digest.hexdigest()
