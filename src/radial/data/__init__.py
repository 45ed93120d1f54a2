"""Datasets, splits and batched views."""

from radial.data.datasets import DATASETS, load_data
from radial.data.errors import DataError
from radial.data.images import Data, Images

__all__ = ["DATASETS", "Data", "DataError", "Images", "load_data"]
