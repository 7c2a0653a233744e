"""Results that a folder keeps, and certificates that are given, are looked at before they are believed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
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


def test_certificates_of_other_inputs_or_of_another_classifier_are_refused() -> None:
    """Their alarms would be false."""
    smoothed, x, _ = half_space()
    given: dict[str, Any] = {"certificates": smoothed.certify(x, n=1_000, seed=1, progress=False), **SMALL}
    vb.attack(smoothed, x, attacks="minimal:steps=2", **given)
    with pytest.raises(BadInput, match=r"not made for this classifier and these inputs.*sha256 differs"):
        vb.attack(smoothed, x[::-1].copy(), attacks="minimal:steps=2", **given)
    other, *_ = half_space()
    with torch.no_grad():
        other.base.module.weight.mul_(-1)
    with pytest.raises(BadInput, match=r"not made for this classifier and these inputs \(the model has fingerprint"):
        vb.attack(other, x, attacks="minimal:steps=2", **given)
    loud = vb.SmoothedClassifier(smoothed.base, "gaussian:sigma=0.9", num_classes=2)
    with pytest.raises(BadInput, match=r"not made with gaussian:sigma=0.9"):
        vb.attack(loud, x, attacks="minimal:steps=2", **given)
