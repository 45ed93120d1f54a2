"""`radial doctor` and `radial cache`: what is installed, what it runs on, what it keeps on disk."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import radial
from radial.cli.terminal import Parser, Run
from radial.files import cache_folder

GIB = 2**30
OURS = ("dev", "docs")  # extras of whoever works on radial itself
KEPT = {
    "features": "of at most 8 GiB: of images, by network and settings",
    "pixels": "of at most 16 GiB: decoded images; RADIAL_PIXELS sets another limit",
    "compiled": "networks, by torch.compile",
}


def doctor(parser: Parser) -> Run:
    def run(_: Namespace) -> int:
        for title, lines in (
            ("radial", [f"{radial.__version__} in {Path(radial.__file__).parent}"]),
            ("python", [f"{platform.python_version()}, {platform.platform()}"]),
            ("torch", _torch()),
            ("compiler", [_compiler()]),
            ("extras", _extras()),
            ("caches", _caches()),
        ):
            for line in lines:
                print(f"{title:10}{line}")
                title = ""
        return 0

    return run


def cache(parser: Parser) -> Run:
    parser.add_argument("--clear", action="store_true", help="remove it; datasets stay")

    def run(options: Namespace) -> int:
        for line in _caches():
            print(line)
        if options.clear:
            for name in KEPT:
                shutil.rmtree(cache_folder() / name, ignore_errors=True)
            left = [name for name in KEPT if (cache_folder() / name).exists()]
            print(f"not removed: {', '.join(left)}" if left else "cleared")
            return 1 if left else 0
        return 0

    return run


def _torch() -> Iterator[str]:
    import torch

    cores = os.cpu_count()
    yield f"{torch.__version__}, {torch.get_num_threads()} threads on {cores} cores"
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield f"cuda:{number} {about.name}, {about.total_memory / GIB:.0f} GiB"
    if torch.backends.mps.is_available():
        yield "mps"


def _compiler() -> str:
    """What torch.compile would build code for the CPU with."""
    name = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "cl")), None)
    if name is None or shutil.which(name) is None:
        return "none found: --compile needs a C++ compiler"
    shown = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    return next(iter((shown.stdout or shown.stderr).splitlines()), name)


def _extras() -> Iterator[str]:
    """Each extra as the installed distribution declares it: complete, or what it lacks."""
    try:
        declared = metadata.requires("radial-ssl") or []
    except metadata.PackageNotFoundError:
        yield "radial-ssl is not installed: this is a folder of its source"
        return
    extras: dict[str, list[str]] = {}
    for line in declared:
        of = re.search(r"extra == ['\"](\w+)['\"]", line)
        name = re.match(r"[\w.-]+", line)
        elsewhere = ("!=" in line.partition("sys_platform")[2]) == (sys.platform == "darwin")
        if name and of and of[1] not in OURS and not ("sys_platform" in line and elsewhere):
            extras.setdefault(of[1], []).append(name[0])
    for extra, names in extras.items():
        own = [name for name in names if name != "radial-ssl"]
        found = {name: _version(name) for name in own}
        if missing := [name for name in own if found[name] is None]:
            yield f"{extra:8} lacks {', '.join(missing)}: pip install 'radial-ssl[{extra}]'"
        elif own:
            yield f"{extra:8} {', '.join(f'{name} {version}' for name, version in found.items())}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _caches() -> Iterator[str]:
    root = cache_folder()
    yield f"{root}" + ("" if os.environ.get("RADIAL_DATA") else "; RADIAL_DATA=DIR moves it")
    for name, what in KEPT.items():
        files = [path.stat().st_size for path in (root / name).rglob("*") if path.is_file()]
        yield f"{name:9} {sum(files) / GIB:.2f} GiB, {len(files):,} files; {what}"
