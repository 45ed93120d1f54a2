"""The one reader of files with weights: tensors by name, and what stands beside them.

Nothing of a file is run: pickles are read with ``weights_only=True``. Classes that a pickle names
beside its tensors (an ``argparse.Namespace``, an OmegaConf, a module) become inert stand-ins; one
that wants the operating system or a function of Python's is refused. What is wrong with a file is
told in one line.
"""

from __future__ import annotations

import pickle
import re
import sys
import warnings
import zipfile
import zlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING  # pickles name modules as Python 2 did
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.checks import check_size, one_line
from radial.documents import plain

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".th", ".pth.tar")
PLACES = ("model", "state_dict")  # where files keep a network; either may hold the other
# What stands beside a backbone in a file, and is no part of it.
_OTHERS = re.compile(
    r"fc\.|linear\.|mask(ed)?_(token|embed)|queue|(\w+_)?(classifier|heads?|projector|projection|predictor"
    r"|prediction|prototypes|decoder|mlp|loss|center)(_\w+)?(\.|$)"
)
_ASIDE = re.compile(r"optim|sched|scaler|callback|loops|rng|radial$|hyper_param|args$|config$")
_MOMENTUM = re.compile(
    r"momentum|target|teacher|(^|[._])(ema|slow|swa|offline|avg_model)([._]|$)"
    r"|(encoder|backbone|model|net|network|trunk|head|projector|projection|mlp)_(k|m|mom|key)(\.|$)"
    r"|^(module\.)?(k|m|mom|key|avg)\.",
    re.IGNORECASE,
)
# What radial train writes beside the weights.
_FACTS: dict[str, type] = {
    "config": dict, "image_size": int, "stem": str, "mean": list, "std": list,
    "head_status": str, "head_health": str,
}  # fmt: skip
# What Lightning writes, and a run cannot go on without.
_STATE: dict[str, type] = {
    "epoch": int, "global_step": int, "optimizer_states": list, "callbacks": dict, "loops": dict,
}  # fmt: skip
# Of Python itself only what holds data has a stand-in; of other packages every name, since a
# stand-in is none of theirs.
_PLAIN = {
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object",
    "range", "set", "slice", "str", "tuple",
}  # fmt: skip
_DATA = re.compile(
    r"argparse\.Namespace|collections\.\w+|copyreg\._reconstructor|dataclasses\.\w+"
    r"|datetime\.\w+|decimal\.Decimal|enum\.\w+|fractions\.Fraction|functools\.partial"
    r"|pathlib(\._local)?\.\w+|types\.SimpleNamespace|typing\.\w+|uuid\.UUID"
)
_MOST_NAMES = 200  # that a pickle of the old format may need stand-ins for


class Inert:
    """Stands for an object of a pickle: keeps its attributes, does nothing."""

    def __new__(cls, *args: object, **options: object) -> Any:
        return super().__new__(cls)

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        for values in state if isinstance(state, tuple) else (state,):
            if isinstance(values, dict):
                self.__dict__.update({k: v for k, v in values.items() if isinstance(k, str)})


class InertDict(Inert):
    """Stands for a dictionary of another class: torch's reader fills plain ones only."""

    def __new__(cls, *args: object, **options: object) -> Any:
        return OrderedDict()


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A file as read."""

    path: Path
    content: dict[str, Any]  # all that it holds
    metadata: Mapping[str, str] = field(default_factory=dict)  # in the header of safetensors

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The network's or networks', under the names they have in the file.

        Of what holds a network, ``teacher`` stays part of the names, ``model`` and
        ``state_dict`` do not; optimisers and settings are left out.
        """
        content = state_dict(self.content) if self.facts else self.content
        found: dict[str, Tensor] = {}
        for name, value in _named(content, "", ()):
            found.setdefault(name, value)
        if not found:
            raise ValueError(f"{self.path} holds no tensors by name")
        return found

    @property
    def facts(self) -> Mapping[str, Any]:
        """What radial train wrote beside the weights; nothing for files of others.

        Raises:
            ValueError: some of it is not of its kind.
        """
        facts = self.content.get("radial")
        if not isinstance(facts, Mapping) or not facts.keys() >= _FACTS.keys():
            return {}
        config = facts["config"]
        if not isinstance(config, Mapping) or not {"method", "head"} <= config.keys():
            return {}
        try:
            facts = dict(plain(dict(facts)))
            for name, kind in _FACTS.items():
                if type(facts[name]) is not kind:
                    raise ValueError(f"{name} must be of {kind.__name__}, not {facts[name]!r}")
            for name in ("mean", "std"):
                if len(facts[name]) != 3 or not all(type(one) is float for one in facts[name]):
                    raise ValueError(f"{name} must be three numbers, not {facts[name]!r}")
            check_size("image_size", facts["image_size"])
        except ValueError as error:
            raise ValueError(f"{self.path} is damaged: {one_line(error)}") from error
        return facts


def _named(content: Any, prefix: str, above: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    """Tensors below a mapping, or below the stand-in of a module, by their full names."""
    if isinstance(content, Inert):
        parts = (vars(content).get(name) for name in ("_parameters", "_buffers", "_modules"))
        content = {k: v for part in parts if isinstance(part, Mapping) for k, v in part.items()}
    if not isinstance(content, Mapping) or id(content) in above or len(above) > 32:
        return  # a pickle may hold itself
    network = any(isinstance(content.get(place), Mapping | Inert) for place in PLACES)
    for key, value in content.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, Tensor):
            if not network:  # beside a network stand its queue, its centre and the like
                yield prefix + key, value
        elif network and isinstance(value, Inert) and key not in PLACES:
            continue  # a module beside the network's tensors: settings, a copy
        elif above or not _ASIDE.search(key):
            inner = prefix if key in PLACES and network else f"{prefix}{key}."
            yield from _named(value, inner, (*above, id(content)))


def read_file(path: str | PathLike[str]) -> Checkpoint:
    """Read a file of any kind without running anything of it.

    Args:
        path: ``.safetensors``, or anything that ``torch.save`` wrote: ``.ckpt``, ``.pt``, ``.pth``.

    Returns:
        Its tensors by name, and what stands beside them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, refused, or holds something other than values by name.
    """
    path = Path(path)
    content, metadata = read_content(path)
    if isinstance(content, Inert) and "_modules" in vars(content):
        content = {"model": content}  # a whole module was saved
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ValueError(f"{path} holds no tensors by name: expected a state dict, found {kind}")
    return Checkpoint(path=path, content=content, metadata=metadata)


def read_content(path: Path) -> tuple[Any, Mapping[str, str]]:
    """All that a file holds, whatever it is, and the metadata of safetensors."""
    if not path.is_file():
        raise FileNotFoundError(f"no such checkpoint: {path}")
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="pt") as file:
                held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return held, file.metadata() or {}
        content = _unpickled(path)
    except (OSError, Refused):
        raise
    except Exception as error:  # damaged bytes raise nearly anything
        raise ValueError(f"{path} is damaged or no checkpoint") from error
    _check_bounds(path, content)
    return content, {}


class Refused(ValueError):
    """A file that is not read, though it may be whole."""


def _unpickled(path: Path) -> Any:
    """What ``torch.save`` wrote, with stand-ins for what is neither tensor nor plain value."""
    names: dict[str, type] = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise Refused(f"{path} is TorchScript, which is a program: torchscript:{path} runs it")
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise Refused(f"{path} is compressed, which torch.save never does: refused")
        for name in torch.serialization.get_unsafe_globals_in_checkpoint(str(path)):
            names[name] = _stand_in(path, name)
    for _ in range(_MOST_NAMES):
        try:
            with warnings.catch_warnings():  # of old formats: the caller wants one line or none
                warnings.simplefilter("ignore")
                with torch.serialization.safe_globals(
                    [(kind, name) for name, kind in names.items()]
                ):
                    return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            name, kind = _wanted(path, str(error), names)
            if names.get(name) is kind or (name in names and issubclass(names[name], InertDict)):
                raise
            names[name] = kind
    raise Refused(f"{path}: refused, it names more than {_MOST_NAMES} classes")


def _wanted(path: Path, message: str, names: Mapping[str, type]) -> tuple[str, type]:
    """Which stand-in is missing, or has to be a dictionary, by what torch's reader says."""
    if filled := re.search(r"Can only SETITEMS? for .*<class '([\w.<>]+)'>", message):
        name = next((name for name, kind in names.items() if _shown(kind) == filled[1]), filled[1])
        return name, _kind(name, InertDict)
    if named := re.search(r"GLOBAL ([\w.]+)", message):
        name = named[1] if "." in named[1] else f"builtins.{named[1]}"
        return name, _stand_in(path, name)
    if called := re.search(r"(function|class) '?<?([\w. ]+)", message):
        raise _refusal(path, called[2].strip())
    raise ValueError("damaged")


def _stand_in(path: Path, name: str) -> type:
    module, _, last = name.rpartition(".")
    module, last = NAME_MAPPING.get((module, last), (IMPORT_MAPPING.get(module, module), last))
    plain = module == "builtins" and last in _PLAIN
    known = _DATA.fullmatch(f"{module}.{last}")
    if module.partition(".")[0] in sys.stdlib_module_names and not plain and not known:
        raise _refusal(path, f"{module}.{last}")
    return _kind(name, InertDict if last.lower().endswith("dict") else Inert)


def _kind(name: str, base: type[Inert]) -> type:
    module, _, last = name.rpartition(".")
    return type(last, (base,), {"__module__": module})


def _shown(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _refusal(path: Path, name: str) -> Refused:
    return Refused(
        f"{path}: refused, it holds more than tensors and primitives (it wants {name}); "
        "checkpoints are read with weights_only=True"
    )


def _check_bounds(path: Path, content: Any) -> None:
    """No tensor may be larger than its file: one of stride 0 can claim terabytes."""
    size = path.stat().st_size
    loose = [("", content)] if isinstance(content, Tensor) else _named(content, "", ())
    for name, value in loose:
        if value.numel() * value.element_size() > size:
            raise Refused(
                f"{path}: refused, its tensor {name} {tuple(value.shape)} is larger than the file"
            )


def read_checkpoint(path: str | PathLike[str]) -> dict[str, Any]:
    """All that a checkpoint of radial train holds, each of its kind, not a bit of it changed.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or the file of others.
    """
    checkpoint = read_file(path)
    facts, content = checkpoint.facts, checkpoint.content
    state = content.get("state_dict")
    if not facts or not isinstance(state, Mapping):
        raise ValueError(f"{path} is not a checkpoint of radial train")
    check_whole(path)
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(f"{path} is damaged: {name!r} of its network is no tensor by name")
    for name, kind in _STATE.items():
        value = content.get(name)
        empty = value < 0 if isinstance(value, int) else not value
        if type(value) is not kind or empty:
            raise ValueError(f"{path} is damaged: its {name} is {one_line(repr(value), 60)}")
    return {**content, "radial": facts}


def check_whole(path: str | PathLike[str]) -> None:
    """A ValueError where a byte is not what was written: torch writes checksums, and checks none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    try:
        with zipfile.ZipFile(path) as file:
            wrong = file.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise ValueError(f"{path} is damaged: {one_line(error)}") from error
    if wrong is not None:
        raise ValueError(f"{path} is damaged: the checksum of {one_line(wrong, 60)} is another")


def state_dict(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values by name of the network in what a file holds.

    >>> state_dict({"epoch": 3, "state_dict": {"model": {"fc.bias": 0.0}}})
    {'fc.bias': 0.0}
    """
    for _ in range(4):  # a pickle may hold itself
        inner = (content[place] for place in PLACES if isinstance(content.get(place), Mapping))
        content = next(inner, content)
    return content


def part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries below a prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


def is_momentum_copy(name: str) -> bool:
    """Whether a name is that of a slow copy of a network: ``target_head``, ``head_momentum``."""
    return _MOMENTUM.search(name) is not None


def fitting(tensors: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """The tensors under the prefix that matches most wanted names, without heads and the like.

    ``module.encoder_q.conv1.weight`` becomes ``conv1.weight`` where that is wanted; of several
    networks that fit alike the first is taken.
    """
    wanted = set(wanted)
    dots = (key[: at + 1] for key in tensors for at, char in enumerate(key) if char == ".")
    prefixes = dict.fromkeys(["", *dots])
    best = max(prefixes, key=lambda prefix: sum(prefix + key in tensors for key in wanted))
    return {
        key: value
        for key, value in part(tensors, best).items()
        if key in wanted or not _OTHERS.match(key)
    }


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], complaint: str) -> None:
    """Load all of a module's tensors or none.

    Raises:
        ValueError: the complaint, and what is missing, too much or of another shape.
    """
    own = module.state_dict()
    shapes = {
        key: (tuple(tensors[key].shape), tuple(own[key].shape)) for key in own if key in tensors
    }
    faults = {
        # files from before PyTorch 0.4.1 do not count batches
        "missing": [k for k in own if k not in tensors and not k.endswith("num_batches_tracked")],
        "unexpected": [key for key in tensors if key not in own],
        "of another shape": [f"{k} {a} for {b}" for k, (a, b) in shapes.items() if a != b],
    }
    found = [
        f"{len(keys)} {fault}: {', '.join(keys[:3])}{', …' if len(keys) > 3 else ''}"
        for fault, keys in faults.items()
        if keys
    ]
    if found:
        raise ValueError(f"{complaint}; {'; '.join(found)}")
    module.load_state_dict(dict(tensors))
