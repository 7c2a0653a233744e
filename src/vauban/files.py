"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from vauban.errors import CannotWrite


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` so that a reader sees the old file or the new one and nothing between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise CannotWrite(f"{path} cannot be written: {problem.strerror or problem}") from problem
