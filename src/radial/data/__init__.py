"""Datasets, splits and batched views.

Names are found when asked for: choosing Open Images needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radial.checks import DataError
    from radial.data.datasets import DATASETS, load_data
    from radial.data.images import Data, Images
    from radial.data.subset import OpenImagesV7

_HOME = {
    "DATASETS": "radial.data.datasets",
    "Data": "radial.data.images",
    "DataError": "radial.checks",
    "Images": "radial.data.images",
    "OpenImagesV7": "radial.data.subset",
    "load_data": "radial.data.datasets",
}

__all__ = ["DATASETS", "Data", "DataError", "Images", "OpenImagesV7", "load_data"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from radial.checks import with_hint

        raise with_hint(error) from None
