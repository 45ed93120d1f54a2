"""Pickles of other projects: classes become inert, programs stay refused, nothing of them runs."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foreign_files import Unknown, config, namespace, save
from radial.checkpoints import Inert, read_content, read_file

STATE = {"conv.weight": torch.arange(24.0).view(2, 3, 2, 2), "conv.bias": torch.ones(2)}


class EasyDict(dict):
    """A dictionary of another class, as configurations often are."""


class Calls:
    """Pickled as a call of ``function`` with ``args``."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple:
        return self.call


HARMLESS = {
    "Namespace": namespace,
    "OmegaConf": config,
    "a class that is not installed": Unknown,
    "a dictionary of another class": lambda: EasyDict(a=1, b=[EasyDict()]),
    "defaultdict": lambda: defaultdict(list, {"a": [1]}),
    "paths": lambda: [Path("a/b"), {"c": Path("d")}],
    "modules": lambda: nn.Sequential(nn.Linear(2, 2), nn.GELU()),
    "NumPy's numbers": lambda: {"best": __import__("numpy").float64(0.5)},
    "types": lambda: {"kind": dict, "other": int},
    "datetime": lambda: __import__("datetime").datetime(2026, 1, 1),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("what", HARMLESS)
def test_what_a_tensor_does_not_need_is_inert(what: str, legacy: bool, tmp_path: Path) -> None:
    content = {"model": STATE, "extra": HARMLESS[what](), "epoch": 3}
    path = save(content, tmp_path / "x.pth", _use_new_zipfile_serialization=not legacy)
    if what == "modules" and legacy:  # the old format wraps modules with their source code
        with pytest.raises(ValueError, match="refused, it holds more than tensors"):
            read_file(path)
        return
    found = read_file(path)
    assert found.content["epoch"] == 3
    assert found.tensors.keys() == STATE.keys()
    assert all(torch.equal(found.tensors[name], STATE[name]) for name in STATE)


def test_stand_ins_keep_attributes_and_are_none_of_theirs(tmp_path: Path) -> None:
    found = read_file(save({"model": STATE, "args": namespace()}, tmp_path / "x.pth"))
    args = found.content["args"]
    assert isinstance(args, Inert)
    assert type(args).__module__ == "argparse"
    assert (args.arch, args.lr) == ("x", 0.1)


def programs(marker: Path) -> dict[str, Calls]:
    touch = f"open({str(marker)!r}, 'w')"
    return {
        "os.system": Calls(os.system, f"touch {marker}"),
        "eval": Calls(builtins.eval, touch),
        "exec": Calls(builtins.exec, touch),
        "open": Calls(builtins.open, str(marker), "w"),
        "getattr": Calls(builtins.getattr, "x", "upper"),
        "subprocess": Calls(subprocess.Popen, ["touch", str(marker)]),
        "Path.touch": Calls(Path.touch, marker),
        "torch.load": Calls(torch.load, str(marker)),
        "io.open": Calls(io.FileIO, str(marker), "w"),
        "stand-in as a function": Calls(sys.exit, 3),
    }


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", programs(Path("x")))
def test_programs_never_run(name: str, legacy: bool, tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", tmp_path / "x.pth"
    content = {"model": STATE, "extra": programs(marker)[name]}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    if name == "torch.load":  # a name of no power, since its stand-in has none
        assert read_file(path).tensors.keys() == STATE.keys()
    else:
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}:? [^\n]+$"):
            read_file(path)
    assert not marker.exists()


def test_a_tensor_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    """Stride 0: a few bytes that claim terabytes once anything copies them."""
    path = tmp_path / "x.pth"
    torch.save({"conv1.weight": torch.zeros(1).expand(2**20, 2**20)}, path)
    assert path.stat().st_size < 4096
    with pytest.raises(ValueError, match=r"\(1048576, 1048576\) is larger than the file"):
        read_file(path)


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(2**20)}, tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "x.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.namelist():
            packed.writestr(member, plain.read(member))
    with pytest.raises(ValueError, match=r"is compressed, which torch\.save never does"):
        read_file(tmp_path / "x.pth")


def test_a_bare_tensor_is_content(tmp_path: Path) -> None:
    torch.save(torch.ones(4, 3), tmp_path / "x.pt")
    assert torch.equal(read_content(tmp_path / "x.pt")[0], torch.ones(4, 3))
    (tmp_path / "y.pt").write_bytes(pickle.dumps({"a": namespace()}))
    with pytest.raises(ValueError, match="is damaged or no checkpoint"):
        read_content(tmp_path / "y.pt")
