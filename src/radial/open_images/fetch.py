"""From a manifest to class folders of whole images: balanced, resumable, the same every time."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from radial.checks import DataError
from radial.open_images.arrivals import Arrivals, Plan, Reading
from radial.open_images.journal import FOLDER, MANIFEST, Identity, Journal
from radial.open_images.manifest import Manifest, Row, read_manifest, sidecar
from radial.open_images.workers import BASE, FetchSettings, NotWhole, disk_reason, prepared

__all__ = ["BASE", "FetchResult", "FetchSettings", "Reading", "fetch"]


@dataclass(frozen=True)
class FetchResult:
    """What there is now. Not ``complete``: call again to go on."""

    complete: bool
    images: int  # of the subset, in their places
    wanted: int  # images of the whole subset
    per_class: int
    planned: int  # images a class that the manifest had chosen: more, where one ran out
    gone: int  # images that are not there or cannot be read
    limited_by: str | None = None  # the class that ran out, where one did
    errors: int = 0  # images that did not come
    example: str | None = None  # one of the errors, in one line
    ended: bool = False  # there was no use in going on, for the reason in ``example``


def fetch(
    manifest_path: Path | str,
    out: Path | str,
    settings: FetchSettings | None = None,
    *,
    tell: Callable[[str], None] | None = None,
    progress: Callable[[Reading], None] | None = None,
) -> FetchResult:
    """Fetch the images of a manifest into ``out/<class>/<id>.jpg``.

    Images that are gone (404, 410), or that are no whole images when asked for twice, are
    replaced by the next of the class in hash order; where there is none, all classes give up
    their last, so that they stay equal. ``out/manifest.csv`` says in the end what became of each
    row. Any other error leaves the fetch incomplete: what has arrived stays, and the next call
    goes on with the rest. Files that were not fetched are left alone.

    The files depend on the manifest, on ``settings.size`` and on what the server has: not on the
    order of arrival, the number of connections, interruptions, or the directory.
    """
    settings, out = settings or FetchSettings(), Path(out)
    try:
        own = Path(manifest_path).resolve() == (out / MANIFEST).resolve()
        begun = (out / FOLDER).is_dir()  # then the given one may be about to be replaced
        manifest = None if own and begun else read_manifest(manifest_path)
        if out.exists() and not out.is_dir():
            raise DataError(f"{out} is not a directory")
        out.mkdir(parents=True, exist_ok=True)
        with Journal.open(out) as journal:
            try:
                identity, manifest = _begin(journal, manifest, own, settings, tell)
            finally:
                if journal.begun() is None:  # refused, or complete
                    journal.remove()
            if identity is None:
                return _finished(manifest)
            plan = Plan(manifest)
            arrivals = Arrivals(journal, plan, settings, tell, progress)
            try:
                arrivals.resume()
            except DataError:
                journal.abandon()
                raise
            arrivals.run()
            if arrivals.complete:
                return _finish(journal, plan, identity)
            return _incomplete(plan, arrivals.errors, arrivals.example, arrivals.ended)
    except OSError as error:
        raise DataError(disk_reason(error, out)) from error


def _begin(
    journal: Journal,
    manifest: Manifest | None,
    own: bool,
    settings: FetchSettings,
    tell: Callable[[str], None] | None,
) -> tuple[Identity | None, Manifest]:
    """Go on with the fetch that this directory holds, or begin one; None: it is complete."""
    begun = journal.begun()
    if begun is not None:
        manifest = journal.manifest() if own else manifest
        assert manifest is not None
        source = begun.source if own else manifest.sha256
        Identity(source, settings.size).check(begun, journal.out)
        return begun, manifest
    final = _final(journal.out / MANIFEST)
    if manifest is None:
        manifest = read_manifest(journal.out / MANIFEST)
    about = _fetched(final)
    if final is None or about is None:
        if final is not None and final.sha256 != manifest.sha256:
            raise DataError(
                f"{journal.out / MANIFEST} is that of something else: take another directory"
            )
        identity = Identity(manifest.sha256, settings.size)
        journal.begin(identity, manifest)
        return identity, manifest
    before = Identity(str(about.get("source")), about.get("size"))
    identity = Identity(before.source if own else manifest.sha256, settings.size)
    identity.check(before, journal.out)
    chosen = [row for row in final.rows if row.role == "chosen"]
    there = _there(journal.out, chosen, about.get("sizes"))
    if len(there) == len(chosen):
        return None, final
    if tell is not None:
        count = len(chosen) - len(there)
        what = "1 image is" if count == 1 else f"{count:,} images are"
        tell(f"{what} lost or damaged; the others are checked")
    sizes = _whole(journal.out, there)
    ours = [(row, sizes.get(row.id, -1)) for row in chosen]  # no file has size −1: it comes again
    gone = [row for row in final.rows if row.role == "gone"]
    journal.begin(identity, manifest, ours, gone, settings.base)
    return identity, manifest


def _final(path: Path) -> Manifest | None:
    return read_manifest(path) if path.exists() or sidecar(path).exists() else None


def _there(out: Path, rows: list[Row], sizes: object) -> list[tuple[Row, int]]:
    """Images in their places, of the size that the final manifest says they have."""
    if not isinstance(sizes, list) or len(sizes) != len(rows):
        raise DataError(f"{sidecar(out / MANIFEST)} is damaged: it lacks sizes of images")
    found = [(row, _bytes(out / row.path)) for row in rows]
    return [(row, size) for (row, size), due in zip(found, sizes) if size and size == due]


def _whole(out: Path, images: list[tuple[Row, int]]) -> dict[str, int]:
    """Sizes, by id, of those whose pixels can be decoded."""

    def whole(image: tuple[Row, int]) -> bool:
        try:
            return bool(prepared((out / image[0].path).read_bytes()))
        except NotWhole:
            return False

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = zip(images, pool.map(whole, images))
        return {row.id: size for (row, size), good in found if good}


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() and not path.is_symlink() else 0


def _finish(journal: Journal, plan: Plan, identity: Identity) -> FetchResult:
    """Delete what the subset does not need, write the manifest, and be done."""
    manifest = plan.manifest
    rows = tuple(plan.final_rows())
    before = _fetched(manifest) or {}
    about = {
        **asdict(identity),
        "per_class": _planned(manifest),
        "limited_by": plan.limiting or before.get("limited_by"),
        "sizes": [journal.sizes[row.id] for row in rows if row.role == "chosen"],
    }
    final = Manifest(
        rows=rows, settings={**manifest.settings, "fetch": about}, classes=manifest.classes
    )
    journal.drop(row for row in rows if row.role != "chosen")
    try:
        journal.finish(final)
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # a full disk
            return _incomplete(plan, 1, str(error))
        raise
    return _finished(final)


def _finished(final: Manifest) -> FetchResult:
    images = sum(final.counts().values())
    return FetchResult(
        complete=True,
        images=images,
        wanted=images,
        per_class=final.per_class,
        planned=_planned(final),
        gone=sum(final.counts("gone").values()),
        limited_by=(_fetched(final) or {}).get("limited_by"),
    )


def _incomplete(plan: Plan, errors: int, example: str | None, ended: bool = True) -> FetchResult:
    return FetchResult(
        complete=False,
        images=plan.done,
        wanted=plan.total,
        per_class=plan.target,
        planned=_planned(plan.manifest),
        gone=plan.lost,
        limited_by=plan.limiting,
        errors=errors,
        example=example,
        ended=ended,
    )


def _fetched(manifest: Manifest | None) -> dict[str, Any] | None:
    """What a final manifest says about its fetch; None where it is not one."""
    about = None if manifest is None else manifest.settings.get("fetch")
    return about if isinstance(about, dict) else None


def _planned(manifest: Manifest) -> int:
    planned = (_fetched(manifest) or {}).get("per_class")
    return planned if isinstance(planned, int) else manifest.per_class
