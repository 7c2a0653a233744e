"""Reference networks and their weight files: build one from its spec, save it, load it; torch is imported only when used."""

from typing import TYPE_CHECKING, Any

from vauban.models.registry import (
    ARCHITECTURES,
    Architecture,
    ModelListing,
    canonical,
    default_for,
    describe,
    fitting,
    fitting_views,
    packaged,
)

if TYPE_CHECKING:
    from vauban.models.building import build
    from vauban.models.composing import denoise, ensemble
    from vauban.models.files import LoadedModel, how_to_load, load, read_metadata, save

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "LoadedModel",
    "ModelListing",
    "build",
    "canonical",
    "default_for",
    "denoise",
    "describe",
    "ensemble",
    "fitting",
    "fitting_views",
    "how_to_load",
    "load",
    "packaged",
    "read_metadata",
    "save",
]

_NEEDS_TORCH = {
    "build": "vauban.models.building",
    "denoise": "vauban.models.composing",
    "ensemble": "vauban.models.composing",
    "LoadedModel": "vauban.models.files",
    "how_to_load": "vauban.models.files",
    "load": "vauban.models.files",
    "read_metadata": "vauban.models.files",
    "save": "vauban.models.files",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_NEEDS_TORCH[name]), name)
