"""Pictures and labels from the usual file formats, read with numpy alone: `load("mnist:split=test")`."""

from vauban.data.dataset import Dataset
from vauban.data.kinds import KINDS, register
from vauban.data.registry import DataListing, describe, load, load_some

__all__ = ["KINDS", "DataListing", "Dataset", "describe", "load", "load_some", "register"]
