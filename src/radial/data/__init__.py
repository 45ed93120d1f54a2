"""Datasets, splits and batched views."""

from radial.data.datasets import DATASETS, load_data
from radial.data.errors import DataError
from radial.data.images import Data, Images
from radial.data.open_images.dataset import OpenImagesV7

__all__ = ["DATASETS", "Data", "DataError", "Images", "OpenImagesV7", "load_data"]
