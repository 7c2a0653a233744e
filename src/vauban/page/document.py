"""Puts a report together: one HTML file with its data, styles and scripts inside, under a strict content security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_PROOFS = ("numbers.js", "laws.js", "ballots.js", "poisoning.js", "claims.js")
_LIBRARIES = ("vega.min.js", "vega-lite.min.js", "vega-interpreter.js")
_PAGE = ("charts.js", "gallery.js", "page.js")


def _read(folder: str, names: tuple[str, ...]) -> str:
    return "\n".join((_HERE / folder / name).read_text(encoding="utf-8") for name in names)


PROOFS = _read("proofs", _PROOFS)
"""The JavaScript that recomputes claims; it needs no browser."""
