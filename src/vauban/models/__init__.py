"""Reference networks and their weight files: build one from its spec, save it, load it; torch is imported only when used."""

from typing import TYPE_CHECKING, Any

from vauban.models.registry import ARCHITECTURES, Architecture, ModelListing, canonical, describe, fitting, packaged

if TYPE_CHECKING:
    from vauban.models.building import build
    from vauban.models.files import LoadedModel, load, save

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "LoadedModel",
    "ModelListing",
    "build",
    "canonical",
    "describe",
    "fitting",
    "load",
    "packaged",
    "save",
]

_NEEDS_TORCH = {
    "build": "vauban.models.building",
    "LoadedModel": "vauban.models.files",
    "load": "vauban.models.files",
    "save": "vauban.models.files",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_NEEDS_TORCH[name]), name)
