"""Score mutated copies of a file, in a process of its own: `python mutations.py FILE DATA COUNT`.

Prints a line of JSON: how often each exit code came, and what was told otherwise than in one line.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import sys
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

LIMIT = 12 * 2**30  # bytes of address space: who asks for more has believed a file


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut, doubled, zeroed or moved; most of all in the first and last part."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        near = min(len(data), rng.choice([256, 4096, len(data)]))
        at = rng.randrange(near) if rng.random() < 0.5 else len(data) - 1 - rng.randrange(near)
        kind = rng.choice(["flip", "flip", "byte", "cut", "drop", "double", "zero"])
        if kind == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "byte":
            data[at] = rng.randrange(256)
        elif kind == "cut" and rng.random() < 0.3:
            del data[max(1, at) :]
        elif kind == "drop":
            del data[at : at + rng.randrange(1, 9)]
        elif kind == "double":
            data[at:at] = data[at : at + 8]
        elif kind == "zero":
            data[at : at + 16] = bytes(len(data[at : at + 16]))
        data = data or bytearray(b"\0")
    return bytes(data)


def main(source: Path, images: str, count: int) -> None:
    from radial.cli import main as radial

    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    warnings.simplefilter("ignore")
    rng, codes, wrong = random.Random(0), Counter(), []
    work = Path("work")
    files = sorted(path for path in source.rglob("*") if path.is_file()) or [source]
    for number in range(count):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        place = work / source.name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place)
        chosen = rng.choice(files)
        copy = place / chosen.relative_to(source) if source.is_dir() else place
        copy.write_bytes(mutated(chosen.read_bytes(), rng))
        before = sorted(os.listdir("."))
        name = f"torchscript:{place}" if source.name.startswith("script") else str(place)
        words = ["score", name, "--data", images, "--scores", "rankme", "--repeats", "0"]
        out, err = io.StringIO(), io.StringIO()
        code: object
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = radial([*words, "--no-cache"])
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"[:300]
        codes[str(code)] += 1
        lines = err.getvalue().strip().splitlines()
        if code == 2 and (len(lines) != 1 or out.getvalue()):
            wrong.append([number, lines[:5], out.getvalue()[:200]])
        if code not in (0, 2):
            wrong.append([number, code])
        if sorted(os.listdir(".")) != before or Path("ran").exists():
            wrong.append([number, "left behind", sorted(os.listdir("."))])
    print(json.dumps({"codes": codes, "wrong": wrong[:5], "count": len(wrong)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
