"""Files that are there whole or not at all, and hashes of arrays."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import CannotWrite


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` so that a reader sees the old file or the new one and nothing between.

    A link is followed; what is no ordinary file (a device, a pipe) is written to and stays what it is.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise CannotWrite(f"{path} cannot be written: {problem.strerror or problem}") from problem


def arrays_sha256(*arrays: NDArray[Any] | None) -> str:
    """The sha256, in hex, of the shape, type and bytes of every array; None counts as one that is not there."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none\n")
            continue
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{array.dtype.name} {array.shape}\n".encode())
        digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
