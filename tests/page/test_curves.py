"""The page's curve of attacks: of attacked inputs only, and without those that are wrong before any change."""

from __future__ import annotations

from importlib.resources import files

from javascript import needs_node, run


@needs_node
def test_the_curve_under_attack_is_that_of_attacked_inputs() -> None:
    page = (files("vauban.page") / "assets/page.js").read_text()
    start = page.index("function underAttack")
    body = (
        page[start : page.index("\n  }\n", start) + 4]
        + "\nreturn underAttack(given, 1).map((p) => [p.radius, p.share]);"
    )
    inputs = [{"index": i, "label": 0, "truth": 0} for i in range(5)]
    attack = {
        "inputs": {"0": {"distance": 0.0}, "1": {"distance": 0.5}, "2": {"distance": 0.8}, "3": {"distance": None}}
    }
    for ball, middle in (("open", 75.0), ("closed", 50.0)):
        found = run(body, {"inputs": inputs, "attack": attack, "threat": {"ball": ball}})
        assert found[0] == [0, 75.0]
        assert [0.5, middle] in found
        assert found[-1] == [1, 25.0]
