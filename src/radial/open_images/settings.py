"""How a fetch asks for its images."""

from __future__ import annotations

from dataclasses import dataclass

from radial.checks import DataError, check_number, check_size
from radial.open_images.connections import split

BASE = "https://open-images-dataset.s3.amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class FetchSettings:
    """How to fetch. Only ``size`` changes the files; the rest is how they come.

    Attributes
    ----------
    base:
        Address of the bucket: an image is at ``{base}/{subset}/{id}.jpg``.
    size:
        Shrink images whose short side is longer to this many pixels; None keeps them.
    connections:
        At the same time.
    retries, backoff, longest_wait, timeout:
        Of each request; see `radial.open_images.transfer.get`.
    """

    base: str = BASE
    size: int | None = None
    connections: int = 16
    retries: int = 5
    backoff: float = 0.5
    longest_wait: float = 60.0
    timeout: float = 30.0

    def __post_init__(self) -> None:
        try:
            split(self.base)
            check_size("connections", self.connections)
            check_size("retries", self.retries, minimum=0)
            check_number("backoff", self.backoff)
            check_number("longest_wait", self.longest_wait)
            check_number("timeout", self.timeout, low=1e-3)
            if self.size is not None:
                check_size("size", self.size)
        except ValueError as error:
            raise DataError(str(error)) from None
        if self.connections > 256:
            raise DataError(f"connections must be at most 256, not {self.connections}")
