"""Results that a folder keeps, and certificates that are given, are looked at before they are believed."""

import json
from pathlib import Path
from typing import Any

import pytest
from linear_worlds import SMALL, half_space

import vauban as vb
from vauban.errors import BadInput, Lie


def test_what_was_kept_is_looked_at_before_it_contradicts_a_certificate(tmp_path: Path) -> None:
    smoothed, x, y = half_space()
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    given: dict[str, Any] = {"certificates": certs, "attacks": "minimal:steps=30", "out": tmp_path / "a", **SMALL}
    vb.attack(smoothed, x, y, **given)
    file = tmp_path / "a/results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line | {"distance": 1e-3}) + "\n" for line in lines))
    with pytest.raises(Lie, match=r"the distance kept for input 0 is 0.001, and its adversarial input is"):
        vb.attack(smoothed, x, y, **given)
    file.write_text("".join(json.dumps(line | {"x": "AAAA"}) + "\n" for line in lines))
    with pytest.raises(Lie, match="line 1: the adversarial input cannot be unpacked"):
        vb.attack(smoothed, x, y, **given)


def test_certificates_of_inputs_with_other_labels_are_refused() -> None:
    smoothed, x, y = half_space()
    certs = smoothed.certify(x, y, n=1_000, seed=1, progress=False)
    with pytest.raises(BadInput, match="another true label here than in the certificates"):
        vb.attack(smoothed, x, 1 - y, certificates=certs, attacks="minimal:steps=2", **SMALL)
