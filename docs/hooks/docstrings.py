"""Extension of the reference pages: doctests of docstrings become code blocks, since Markdown reads `>>>` as a quotation."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)+", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Puts a fence around each doctest."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
