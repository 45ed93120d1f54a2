"""What a fetch has done so far, in ``OUT/.fetch``: it survives the end of the process anywhere.

An image is written to ``.fetch/arriving`` and synced, then a line in the journal says that it is
ours, then it is renamed to its place. So a file in its place is whole, and a file with a name of
ours that the journal does not know is somebody else's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from radial.checks import DataError
from radial.documents import parse_json
from radial.files import write_atomically
from radial.open_images.manifest import Manifest, Row, read_manifest, sidecar, write_manifest

FORMAT = 1
FOLDER = ".fetch"
MANIFEST = "manifest.csv"
_IMAGE = re.compile(r"[0-9a-f]{16}\.jpg")
_OURS = re.compile(
    r"arriving|final|lock|(fetch\.json|journal\.jsonl|manifest\.csv(\.json)?)(\.[0-9a-f]{12}\.part)?"
)  # the last is what a process that was killed leaves


@dataclass(frozen=True)
class Identity:
    """What decides the files of a fetch, beside what the server has."""

    source: str  # content hash of the manifest that was given
    size: int | None

    def check(self, other: Identity, out: Path) -> None:
        if self.source != other.source:
            raise DataError(
                f"{out} holds images of another manifest ({other.source[:12]}…, not "
                f"{self.source[:12]}…): take another directory"
            )
        if self.size != other.size:
            raise DataError(
                f"{out} holds images of size {_size(other.size)}, not {_size(self.size)}: "
                "take another directory"
            )


class Journal:
    """Of the fetch in a directory: which images it has, and where they go."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out / FOLDER
        self.arriving = self.folder / "arriving"
        self.fresh = False  # begun by this process
        self.sizes: dict[str, int] = {}  # of images that are ours, by id
        self.missing: set[str] = set()  # ids that the server said it does not have
        self._about = self.folder / "fetch.json"
        self._manifest = self.folder / MANIFEST
        self._journal = self.folder / "journal.jsonl"
        self._final = self.folder / "final"
        self._lines: IO[bytes] | None = None

    @classmethod
    @contextmanager
    def open(cls, out: Path) -> Iterator[Journal]:
        """From the beginning of a fetch until it ends; a DataError if another process is at it."""
        _refuse_foreign(out / FOLDER)
        (out / FOLDER / "arriving").mkdir(parents=True, exist_ok=True)
        with alone(out / FOLDER / "lock", out):
            journal = cls(out)
            try:
                yield journal
            finally:
                if journal._lines is not None:
                    journal._lines.close()

    def begun(self) -> Identity | None:
        """Of which fetch this is the journal; None when it is nobody's yet."""
        try:
            about = parse_json(self._about.read_bytes())
            known = about["format"] <= FORMAT
            identity = Identity(about["source"], about["size"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self._about} is damaged") from None
        if not known:
            raise DataError(f"{self._about} was written by a newer radial")
        return identity

    def manifest(self) -> Manifest:
        """The manifest that the fetch began with."""
        return read_manifest(self._manifest)

    def begin(
        self,
        identity: Identity,
        manifest: Manifest,
        got: Iterable[tuple[Row, int]] = (),
        gone: Iterable[Row] = (),
        base: str = "",
    ) -> None:
        """A new journal, with images that are in their places already."""
        lines = [json.dumps(["got", row.id, size]) for row, size in got]
        lines += [json.dumps(["gone", row.id, base]) for row in gone]
        write_manifest(self._manifest, manifest)
        write_atomically(self._journal, "".join(f"{line}\n" for line in lines))
        about = {"format": FORMAT, **asdict(identity)}
        write_atomically(self._about, json.dumps(about) + "\n")  # from here on it counts
        self.fresh = True

    def load(self, base: str) -> None:
        """Read what was done; what the server at another ``base`` lacked is not held against this.

        A last line that was not written to its end is cut off: its image comes again.
        """
        self._lines = self._journal.open("a+b")
        self._lines.seek(0)
        content = self._lines.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._lines.truncate(whole)
        for line in content[:whole].splitlines():
            with suppress(ValueError, TypeError):
                kind, identity, value = parse_json(line)
                if kind == "got":
                    self.sizes[identity] = value
                elif kind == "gone" and value == base:
                    self.missing.add(identity)

    def restore(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows whose images are in their place; those that were on their way there get there.

        Raises a DataError where a file of somebody else has the name of one of the images.
        """
        waiting = _sizes(self.arriving)
        found: dict[str, dict[str, int]] = {}
        for row in rows:
            if row.class_name not in found:
                if row.class_name.casefold().startswith(MANIFEST):
                    raise DataError(f"class {row.class_name!r} has the name of the manifest")
                found[row.class_name] = _sizes(self.out / row.class_name)
            name = f"{row.id}.jpg"
            there, size = found[row.class_name].get(name), self.sizes.get(row.id)
            if size is None and there is not None:
                raise DataError(
                    f"{self.out / row.path} was not fetched by this: move it away, "
                    "or take another directory"
                )
            if size is not None and there != size and waiting.get(name) == size:
                self._place(row)
                there = size
            if size is not None and there == size:
                yield row
        for name in _sizes(self.arriving):
            os.unlink(self.arriving / name)

    def got(self, rows: Iterable[tuple[Row, int]]) -> None:
        """Images that lie whole in ``arriving``: to their places."""
        rows = list(rows)
        self._write([["got", row.id, size] for row, size in rows])
        for row, size in rows:
            self.sizes[row.id] = size
            self._place(row)

    def gone(self, rows: Iterable[Row], base: str) -> None:
        self._write([["gone", row.id, base] for row in rows])

    def drop(self, rows: Iterable[Row]) -> None:
        """Delete images of ours that the subset does not need."""
        for row in rows:
            if row.id in self.sizes:
                (self.out / row.path).unlink(missing_ok=True)

    def finish(self, final: Manifest) -> None:
        """Put the final manifest into its place; then the journal is not needed any more."""
        here, there = self._final / MANIFEST, self.out / MANIFEST
        write_manifest(here, final)
        sidecar(there).unlink(missing_ok=True)
        os.replace(here, there)
        os.replace(sidecar(here), sidecar(there))
        self.remove()

    def abandon(self) -> None:
        """After a refusal: a journal that this process began, or without an image, is no use."""
        if self.fresh or not self.sizes:
            self.remove()

    def remove(self) -> None:
        """Delete what is ours; the folder goes if that was all."""
        self._about.unlink(missing_ok=True)
        with suppress(OSError):
            for folder, known in ((self.arriving, _IMAGE), (self._final, _OURS)):
                if folder.is_dir() and not folder.is_symlink():
                    _delete(folder, known)
            _delete(self.folder, _OURS)

    def _place(self, row: Row) -> None:
        target = self.out / row.path
        target.parent.mkdir(exist_ok=True)
        os.replace(self.arriving / f"{row.id}.jpg", target)

    def _write(self, entries: list[list[Any]]) -> None:
        assert self._lines is not None, "load() first"
        if not entries:
            return
        self._lines.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        self._lines.flush()
        os.fsync(self._lines.fileno())


@contextmanager
def alone(lock: Path, what: object) -> Iterator[None]:
    """One process at a time; the system frees a lock when its process ends, however it ends."""
    from filelock import FileLock, Timeout

    holding = FileLock(lock, blocking=False)
    try:
        holding.acquire()
    except Timeout:
        raise DataError(f"another process is at work on {what}") from None
    try:
        yield
    finally:
        holding.release()


def _refuse_foreign(folder: Path) -> None:
    """A ``.fetch`` that is not a folder of ours, with nothing else in it."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise DataError(f"{folder} is a link or a file, not the journal of a fetch: move it away")
    if not folder.exists():
        return
    for place, known in ((folder, _OURS), (folder / "arriving", _IMAGE), (folder / "final", _OURS)):
        if place.is_symlink():
            raise DataError(f"{place} is a link, not a folder of a fetch: move it away")
        for path in place.iterdir() if place.is_dir() else ():
            if not known.fullmatch(path.name):
                raise DataError(
                    f"{path} is not of a fetch: move it away, or take another directory"
                )


def _delete(folder: Path, known: re.Pattern[str]) -> None:
    for path in list(folder.iterdir()):
        if known.fullmatch(path.name) and (path.is_symlink() or not path.is_dir()):
            path.unlink()
    folder.rmdir()


def _sizes(folder: Path) -> dict[str, int]:
    if folder.is_symlink():
        raise DataError(f"{folder} is a link: images would leave the directory")
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder, so its class cannot be put there")
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}


def _size(size: int | None) -> str:
    return "as they came" if size is None else str(size)
