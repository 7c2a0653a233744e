"""Poisoning runs that Vauban 0.1 wrote: their manifest, read into today's fields.

The columns of their claims and the names in their seal are those of all runs of schema 1, in `vauban.runs.schema1`.
"""

from __future__ import annotations

from typing import Any

from vauban.poisoning.votes.poisoning_manifest import KIND, PoisoningDataSection, PoisoningManifest, checked
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.runs.manifest import check_kind


def parse(raw: dict[str, Any]) -> PoisoningManifest:
    """A manifest of schema 1 from its JSON; KeyError, TypeError or ValueError where it is none."""
    check_kind(raw, KIND)
    data = raw["data"]
    return checked(
        raw,
        schema=1,
        settings=PoisoningSettings(aggregate=raw["aggregate"], k=raw["k"], label=raw["label"]),
        data=PoisoningDataSection(
            spec=data["spec"],
            sha256=data["sha256"],
            num_classes=raw["num_classes"],
            index=data["index"],
            label=data["label"],
        ),
    )
