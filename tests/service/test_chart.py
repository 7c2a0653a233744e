"""The chart of the page: its numbers are round, at any radius. (test_page.py looks at the page in Chromium.)"""

import json
import subprocess
from importlib.resources import files

import pytest
from javascript import NODE, needs_node

CHART = files("vauban.service") / "page" / "chart.js"


def ticks(*cases: tuple[float, bool]) -> list[list[float]]:
    """What the page writes beside its axis, for each largest radius and whether radii are whole numbers."""
    code = f"{CHART.read_text()}\nconsole.log(JSON.stringify({json.dumps(cases)}.map((case_) => ticks(...case_))));"
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", code], capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout)


@needs_node
def test_ticks_are_round_and_reach_the_largest_radius() -> None:
    radii = [1.7682, 0.93, 0.69, 1.0, 0.0123, 4.2, 17.0, 3e-5]
    found = ticks(*[(radius, False) for radius in radii])
    assert found[0] == [0, 0.5, 1, 1.5, 2]
    assert found[1] == found[3] == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert found[5] == [0, 1, 2, 3, 4, 5]
    for radius, marks in zip(radii, found, strict=True):
        assert radius <= marks[-1] <= 2 * radius
        assert 3 <= len(marks) <= 6
        step = f"{marks[1]:e}"
        assert step.partition("e")[0].rstrip("0").rstrip(".") in ("1", "2", "2.5", "5")


@needs_node
@pytest.mark.parametrize(
    ("most", "marks"), [(1, [0, 1]), (3, [0, 1, 2, 3]), (12, [0, 5, 10, 15]), (60, [0, 20, 40, 60])]
)
def test_counts_have_whole_numbers(most: int, marks: list[int]) -> None:
    assert ticks((most, True)) == [marks]
