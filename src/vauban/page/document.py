"""Puts a report together: one HTML file with its data, styles and scripts inside, under a strict content security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_PROOFS = ("numbers.js", "laws.js", "ballots.js", "poisoning.js", "schema1.js", "claims.js", "shown.js")
_LIBRARIES = ("vega.min.js", "vega-lite.min.js", "vega-interpreter.js")
_PAGE = ("charts.js", "gallery.js", "maps.js", "verdict.js", "page.js")


def _read(folder: str, names: tuple[str, ...]) -> str:
    return "\n".join((_HERE / folder / name).read_text(encoding="utf-8") for name in names)


PROOFS = _read("proofs", _PROOFS)
"""The JavaScript that recomputes claims; it needs no browser."""

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="Vauban {version}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="contents">{contents}</script>
{scripts}
</body>
</html>
"""


def document(contents: dict[str, Any], title: str) -> str:
    """The page that shows these contents (`vauban.page.report`)."""
    from vauban import __version__

    style = _read("assets", ("page.css",))
    scripts = [_read("vendor", (name,)) for name in _LIBRARIES] + [PROOFS, _read("assets", _PAGE)]
    for script in scripts:
        assert "</script" not in script.lower()
    return _TEMPLATE.format(
        policy=policy([style], scripts),
        version=__version__,
        title=html.escape(title),
        style=style,
        body=_read("assets", ("page.html",)),
        contents=json.dumps(contents, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def policy(styles: list[str], scripts: list[str]) -> str:
    """A content security policy: these styles and scripts and no other, pictures inside the page, and no network."""
    allowed = [("script-src", scripts), ("style-src", styles)]
    parts = [" ".join([kind, *(f"'sha256-{_digest(text)}'" for text in texts)]) for kind, texts in allowed]
    return "; ".join(["default-src 'none'", *parts, "img-src data:", "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
