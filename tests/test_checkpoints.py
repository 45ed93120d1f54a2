"""The one reader: whatever a file holds, it is read whole or refused in one line, and never run."""

import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import radial
from radial.checkpoints import (
    fitting,
    is_momentum_copy,
    load_into,
    part,
    read_checkpoint,
    read_file,
    state_dict,
)

NETWORK = {"conv.weight": torch.arange(200.0).view(20, 10), "conv.bias": torch.ones(20)}


def write(path: Path, content: object = NETWORK) -> Path:
    if path.suffix == ".safetensors":
        assert isinstance(content, dict)
        save_file(content, path, {"name": "x"})
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("suffix", [".ckpt", ".pt", ".pth", ".th", ".pth.tar", ".safetensors"])
def test_every_kind_is_read(tmp_path: Path, suffix: str) -> None:
    found = read_file(str(write(tmp_path / f"x{suffix}")))
    assert found.tensors.keys() == NETWORK.keys()
    assert all(torch.equal(found.tensors[name], NETWORK[name]) for name in NETWORK)
    assert found.metadata == ({"name": "x"} if suffix == ".safetensors" else {})
    assert found.facts == {}


@pytest.mark.parametrize(
    "content",
    [
        NETWORK,
        {"state_dict": NETWORK, "epoch": 3},
        {"model": NETWORK},
        {"model": {"state_dict": NETWORK}},
        {"state_dict": {"model": NETWORK}},
        {"state_dict": NETWORK | {"epoch": 3, 5: torch.ones(1)}},
    ],
)
def test_the_network_is_found_where_files_keep_it(tmp_path: Path, content: dict) -> None:
    assert read_file(write(tmp_path / "x.pt", content)).tensors.keys() == NETWORK.keys()


def test_a_file_that_holds_itself(tmp_path: Path) -> None:
    content: dict = {}
    content["model"] = content
    with pytest.raises(ValueError, match=r"x\.pt holds no tensors by name$"):
        read_file(write(tmp_path / "x.pt", content)).tensors  # noqa: B018
    assert state_dict(content) is content


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.marker}",)


def plain_pickle(path: Path, content: object) -> None:
    path.write_bytes(pickle.dumps(content))


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        (write, "refused, it holds more than tensors and primitives (it wants posix.system)"),
        (plain_pickle, "is damaged or no checkpoint"),
    ],
)
def test_a_pickle_that_would_run_a_program_is_refused(tmp_path: Path, dump, message: str) -> None:
    marker = tmp_path / "executed"
    dump(tmp_path / "bad.ckpt", {"state_dict": NETWORK, "extra": Malicious(marker)})
    with pytest.raises(ValueError, match=rf"bad\.ckpt:? {re.escape(message)}"):
        read_file(tmp_path / "bad.ckpt")
    assert not marker.exists()


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_cut_or_foreign_file_is_refused_in_one_line(tmp_path: Path, suffix: str) -> None:
    whole = write(tmp_path / f"whole{suffix}").read_bytes()
    cut = [whole[:size] for size in (0, 1, 5, len(whole) // 2, len(whole) - 200, len(whole) - 1)]
    path = tmp_path / f"x{suffix}"
    for content in (*cut, b"not a checkpoint", b"PK\x03\x04 nothing"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} is damaged or no check"):
            read_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds no tensors by name: expected a state dict, found list"),
        (torch.ones(3), "holds no tensors by name: expected a state dict, found Tensor"),
        ({0: torch.ones(1)}, "holds no tensors by name$"),
        ({"state_dict": {}}, "holds no tensors by name$"),
        ({"epoch": 3}, "holds no tensors by name$"),
    ],
)
def test_a_file_without_tensors_by_name(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_file(write(tmp_path / "x.pt", content)).tensors  # noqa: B018


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.pt", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"no such checkpoint: {path}"):
            read_file(path)


@pytest.mark.parametrize("facts", [None, 3, {}, {"config": {"method": "byol"}}])
def test_files_of_others_are_no_checkpoints_of_ours(tmp_path: Path, facts: object) -> None:
    path = write(tmp_path / "x.ckpt", {"state_dict": NETWORK, "radial": facts})
    with pytest.raises(ValueError, match="is not a checkpoint of radial train"):
        read_checkpoint(path)
    assert read_file(path).tensors.keys() == NETWORK.keys()


@pytest.mark.parametrize("prefix", ["", "module.", "module.encoder_q.", "a.b.c."])
def test_prefixes_and_classifiers_are_stripped(prefix: str) -> None:
    file = {prefix + name: value for name, value in NETWORK.items()}
    more = {f"{prefix}fc.weight": torch.ones(2, 2), "other.conv.bias": torch.ones(3)}
    found = fitting(file | more, NETWORK)
    assert {name: value for name, value in found.items() if name in NETWORK} == NETWORK
    assert "fc.weight" not in found
    assert part(file, prefix) == NETWORK


@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("projection_head_momentum.layers.0", True),
        ("target_encoder.conv1", True),
        ("teacher.conv1", True),
        ("encoder_k.conv1", True),
        ("encoder_q.conv1", False),
        ("backbone.layer1.0.conv1", False),
    ],
)
def test_momentum_copies_are_told_from_networks(name: str, copy: bool) -> None:
    assert is_momentum_copy(name) is copy


def test_loaded_whole_or_not_at_all() -> None:
    module = nn.Linear(10, 20)
    before = module.weight.clone()
    wrong = {"weight": torch.ones(10, 20), "extra": torch.ones(1)}
    message = r"no fit; 1 missing: bias; 1 unexpected: extra; .*weight \(10, 20\) for \(20, 10\)"
    with pytest.raises(ValueError, match=message):
        load_into(module, wrong, "no fit")
    assert torch.equal(module.weight, before)
    load_into(module, part(NETWORK, "conv."), "no fit")
    assert torch.equal(module.weight, NETWORK["conv.weight"])


def test_there_is_one_reader() -> None:
    source = Path(radial.__file__).parent
    readers = {p.name for p in source.rglob("*.py") if "torch.load(" in p.read_text("utf-8")}
    assert readers == {"checkpoints.py"}
