"""The one error of this package: its message is one line, meant for users."""

from __future__ import annotations


class DataError(ValueError):
    """Data that cannot be found, downloaded, read or split as asked."""
