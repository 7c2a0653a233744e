"""In which arithmetic a network answers is a choice, recorded, and changes nothing about the views."""

import json
from pathlib import Path

import pytest
import torch

from vauban.errors import BadInput, RunRefused
from vauban.models import build as network
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier

PICTURES = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
SPEC = "gaussian:sigma=0.25"


def small() -> torch.nn.Module:
    return network("cnn-small:channels=1,classes=3,size=8", seed=1).eval()


def test_bf16_is_the_network_cast_and_the_views_cast_after_they_are_made() -> None:
    seen: dict[str, torch.Tensor] = {}

    class Spy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, views: torch.Tensor) -> torch.Tensor:
            seen[str(views.dtype)] = views.clone()
            return self.net(views)

    spy, counts = Spy(), {}
    for precision in ("fp32", "bf16"):
        smoothed = SmoothedClassifier(spy, SPEC, num_classes=3, precision=precision, backend="torch")
        counts[precision] = smoothed.certify(PICTURES, [0, 1, 2], n=100, seed=3, alpha=0.01).counts
    assert {p.dtype for p in spy.parameters()} == {torch.float32}  # what was given is left alone
    assert torch.equal(seen["torch.bfloat16"], seen["torch.float32"].bfloat16())
    by_hand = small().bfloat16()(seen["torch.float32"].bfloat16()).float().argmax(1)
    assert counts["bf16"][-1].tolist() == torch.bincount(by_hand, minlength=3).tolist()


def test_the_manifest_says_which_and_another_is_another_run(tmp_path: Path) -> None:
    def run(precision: str) -> None:
        smoothed = SmoothedClassifier(small(), SPEC, num_classes=3, precision=precision, backend="torch")
        smoothed.certify(PICTURES, [0, 1, 2], n=100, alpha=0.01, seed=1, out=tmp_path / "run")

    run("bf16")
    verify_run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["compute"]["precision"] == "bf16"
    with pytest.raises(RunRefused, match='compute.precision: the run has "bf16", now "fp32"'):
        run("fp32")


def test_exact_votes_in_bf16() -> None:

    wide = network("cnn-small:channels=2,classes=3,size=8", seed=1).eval()
    results = [
        SmoothedClassifier(wide, "band:size=2", num_classes=3, precision=p, rows=16, backend="torch")
        .ballots(PICTURES)
        .votes
        for p in ("fp32", "bf16")
    ]
    assert results[0].shape == results[1].shape == (3, 8)


@pytest.mark.parametrize(("precision", "complaint"), [("tf32", "NVIDIA"), ("fp8", "precision")])
def test_what_the_device_has_not_is_refused(precision: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        SmoothedClassifier(small(), SPEC, num_classes=3, precision=precision)
