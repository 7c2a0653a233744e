"""What the attacker may do: the metric, its unit, and whether the certified ball holds its own border."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threat:
    """A set of attacks of size up to a radius.

    `ball` is "open" (every change strictly smaller than the radius) or "closed" (the radius itself included);
    `integer` says whether the radius is counted rather than measured.
    """

    name: str
    metric: str
    unit: str
    ball: str
    integer: bool = False

    def sentence(self, radius: str = "r") -> str:
        """Say in words which changes a radius covers."""
        relation = "less than" if self.ball == "open" else "at most"
        return f"every change whose {self.metric} is {relation} {radius} ({self.unit})"


L2 = Threat("l2", "L2 norm", "units of the input, pictures in [0,1]", "open")
