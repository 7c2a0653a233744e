"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

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
