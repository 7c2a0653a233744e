"""Reads pickles of plain values and byte or integer arrays without executing anything they name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput

_INTEGERS = frozenset(f"{kind}{width}" for kind in "iu" for width in (1, 2, 4, 8))


def read_pickle(path: Path) -> Any:
    """Return the contents of the pickle at `path`, with a `PickledArray` for every numpy array.

    Python 2 strings stay bytes. A pickle that names anything but numpy's array constructors is refused.
    """
    with path.open("rb") as stream:
        try:
            return _Unpickler(stream, encoding="bytes").load()
        except BadInput as refusal:
            raise BadInput(f"{path} {refusal}") from None
        except Exception as problem:
            raise BadInput(f"{path} is not a readable pickle ({problem}); fetch it again") from None


class PickledArray:
    """An array as its pickle describes it; numpy gets the bytes only after shape and dtype have been checked."""

    def __init__(self) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def integers(self) -> NDArray[Any]:
        """Return the array, of any shape and an integer dtype."""
        match self._state:
            case (int(), tuple(shape), _PickledDtype() as dtype, bool(by_column), bytes(data)) if _plain(shape):
                flat = np.frombuffer(data, dtype.integer())
                return flat.reshape(shape, order="F" if by_column else "C")
        raise BadInput("holds an array that is not made of plain bytes or integers; nothing in it was run")


def _plain(shape: tuple[Any, ...]) -> bool:
    return all(isinstance(side, int) and side >= 0 for side in shape)


class _PickledDtype:
    def __init__(self, name: Any):
        self._name = name.decode("ascii") if isinstance(name, bytes) else name
        self._order: Any = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self._order = order.decode("ascii") if isinstance(order, bytes) else order

    def integer(self) -> np.dtype[Any]:
        if self._name not in _INTEGERS or self._order not in ("|", "<", ">", "="):
            raise BadInput(f"holds an array of type {self._name!r}; only integers are read")
        return np.dtype(self._name).newbyteorder(self._order)


class _Global:
    """Replaces a global that a pickle names: it can be called like numpy's, but not modified."""

    __slots__ = ("_replacement",)

    def __init__(self, replacement: Callable[..., Any]):
        self._replacement = replacement

    def __call__(self, *arguments: Any) -> Any:
        return self._replacement(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise BadInput("tries to modify what it names, which no data file needs; nothing in it was run")


def _reconstruct(kind: Any, shape: Any, code: Any) -> PickledArray:
    return PickledArray()


def _dtype(name: Any, align: Any = False, copy: Any = True) -> _PickledDtype:
    return _PickledDtype(name)


def _encode(text: str, encoding: Any) -> bytes:
    """Decodes array bytes as Python 3 writes them in Python 2's pickle protocol."""
    if encoding not in ("latin1", b"latin1"):
        raise BadInput(f"encodes text as {encoding!r}; only latin1 is read")
    return text.encode("latin1")


def _ndarray(*arguments: Any) -> PickledArray:
    raise BadInput("builds an array in a way numpy does not write; nothing in it was run")


_REPLACEMENTS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _REPLACEMENTS:
            raise BadInput(f"asks to run {module}.{name}, which no data file needs: refused, nothing in it was run")
        return _Global(_REPLACEMENTS[module, name])
