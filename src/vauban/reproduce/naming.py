"""Names of folders made of what tells runs apart."""

from __future__ import annotations

import re
from collections.abc import Iterable


def file_name(parts: Iterable[str]) -> str:
    """Parts of a name joined by commas, with anything that is unusual in a file's name replaced.

    >>> file_name(["dim-20", "env-A:b"])
    'dim-20,env-A_b'
    """
    return re.sub(r"[^A-Za-z0-9.,_-]+", "_", ",".join(parts))
