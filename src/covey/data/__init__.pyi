from .clients import from_clients
from .convert import from_huggingface, from_tensors, from_torch
from .federate import federate
from .image_folder import read_images
from .loading import load
from .split_files import read_leaf, read_split
from .table import read_table
from .types import ClientShare, Dataset, Federation, Samples, Scale, Shift
from .usual import Usual, declare

__all__ = [
    "ClientShare",
    "Dataset",
    "Federation",
    "Samples",
    "Scale",
    "Shift",
    "Usual",
    "declare",
    "federate",
    "from_clients",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "read_images",
    "read_leaf",
    "read_split",
    "read_table",
]
