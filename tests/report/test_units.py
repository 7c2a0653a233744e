"""What a claim says its radii are measured in: standardised features, sigmas of features, 8-bit features, masses of pictures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.data import Dataset
from vauban.errors import BadInput, Lie
from vauban.formats.choice import results_of_run
from vauban.page.contents import contents
from vauban.replay import replay
from vauban.report.lines import read_lines
from vauban.report.wording import scale_of
from vauban.runs.verify import verify_run
from vauban.standardise import Standardisation

SCALED = "the 2 features, each minus its mean and divided by its scale, which the manifest lists"


class First(torch.nn.Module):
    """Two classes by the sign of the first number, from `cut` on."""

    def __init__(self, cut: float = 0.0):
        super().__init__()
        self.cut = torch.nn.Parameter(torch.tensor(cut))

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Scores [rows, 2]."""
        first = views.flatten(1)[:, 0] - self.cut
        return torch.stack([-first, first], dim=1)


def rows(seed: int, count: int = 4) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, 2)) * [100, 0.01]).astype(np.float32)


def certified(x: Any, smoothing: Any, y: Any = None, **options: Any) -> vb.Certificates:
    out = options.pop("out", None)
    smoothed = vb.SmoothedClassifier(First(options.pop("cut", 0.0)), smoothing, num_classes=2, **options)
    return smoothed.certify(x, y, n=100, seed=1, out=out, progress=False)


@pytest.mark.parametrize("sigma", [0.25, [0.25, 2.0]])
def test_standardised_arrays_have_no_plain_radii(sigma: Any, tmp_path: Path) -> None:
    stats, x = Standardisation.of(rows(1, 50)), rows(2)
    certs = certified(x, vb.Gaussian(sigma), [0, 1, 0, 1], input_range=None, standardise=stats, out=tmp_path / "run")
    assert SCALED in certs.claim
    assert SCALED in certs.record.manifest.claim
    assert SCALED in verify_run(tmp_path / "run").claim
    assert SCALED in json.loads(contents(vb.Run.open(tmp_path / "run"))["manifest"])["threat"]["unit"]


def test_a_plain_radius_would_be_false_where_it_is_standardised() -> None:
    """A feature of scale 0.01: a change of 0.05 is five scales, far beyond a radius of about 0.5 in them."""
    stats = Standardisation((0.0, 0.0), (0.01, 1.0), "training", "0" * 64)
    x = np.array([[0.02, 0.0]], dtype=np.float32)
    certs = certified(x, "gaussian:sigma=0.25", [1], input_range=None, standardise=stats)
    moved = certified(x - np.float32([0.05, 0]), "gaussian:sigma=0.25", [1], input_range=None, standardise=stats)
    assert certs.radius[0] > 0.05
    assert moved.abstained[0]
    assert "units of the input" not in certs.claim


def test_8_bit_inputs_are_not_standardised_by_statistics_of_floats() -> None:
    stats = Standardisation.of(rows(1, 50))
    with pytest.raises(BadInput, match="inputs of 8 bits"):
        certified(np.ones((2, 2), np.uint8), "gaussian:sigma=1", input_range=None, standardise=stats)


def test_statistics_of_the_certified_array_are_refused_with_labels_and_without() -> None:
    x, y = rows(1), np.array([0, 1, 0, 1])
    for stats in (Standardisation.of(x), Standardisation.of(x, y)):
        with pytest.raises(BadInput, match="are its own"):
            certified(x, "gaussian:sigma=1", y, input_range=None, standardise=stats)


def test_8_bit_features_in_floating_point_are_said_to_be_divided(tmp_path: Path) -> None:
    images = np.array([[10, 3], [200, 3]], np.uint8)
    table = Dataset(images, np.array([0, 1]), 2, ("a", "b"), "codes", True, features=("size", "age"))
    certs = certified(
        table, vb.Gaussian([0.1, 0.2]), input_range=None, arithmetic="float", cut=0.4, out=tmp_path / "run"
    )
    assert "the 2 features, whole numbers from 0 to 255 divided by 255" in certs.claim
    assert certs.input_range == (0.0, 1.0)
    verify_run(tmp_path / "run", data=table)
    replay(tmp_path / "run", First(0.4), table, inputs=None, progress=False)
    plain = certified(images, "gaussian:sigma=0.1", [0, 1], input_range=None, arithmetic="float", cut=0.4)
    assert "inputs in [0,1]" in plain.claim


def test_a_list_of_one_sigma_is_that_sigma(tmp_path: Path) -> None:
    x = np.array([[0.3], [0.7]], dtype=np.float32)
    listed = certified(x, vb.Gaussian([0.25]), [0, 1], arithmetic="float", cut=0.5, out=tmp_path / "run")
    one = certified(x, vb.Gaussian(0.25), [0, 1], arithmetic="float", cut=0.5)
    np.testing.assert_array_equal(listed.radius, one.radius)
    assert listed.threat.name == "l2"
    verify_run(tmp_path / "run")


def test_converted_claims_keep_the_condition_on_the_mass() -> None:
    x = np.full((1, 1, 2, 2), 200, np.uint8)
    same = "of pictures whose mass in all is not changed"
    own = certified(x, "flow:sigma=0.05,mass=own", [1], cut=0.1)
    assert not own.abstained[0]
    for certs in (own, own.in_threat("wasserstein-l2", (1, 2, 2))):
        assert same in certs.claim
    one = certified(x, "flow:sigma=0.05", [1], cut=0.1).in_threat("wasserstein-l2", (1, 2, 2))
    assert "pictures normalised to mass 1" in one.claim
    assert same in certified(x, "laplace:sigma=0.25", [1], cut=0.1).in_threat("wasserstein", (1, 2, 2)).claim


def test_runs_of_other_units_are_not_drawn_together(tmp_path: Path) -> None:
    x, y = rows(2), [0, 1, 0, 1]
    for name, stats in (
        ("a", Standardisation.of(rows(1, 50))),
        ("b", Standardisation.of(rows(3, 50))),
        ("plain", None),
    ):
        certified(x, "gaussian:sigma=1", y, input_range=None, standardise=stats, out=tmp_path / name)
    for name, sigma in (("c", [1.0, 2.0]), ("d", [2.0, 1.0])):
        certified(x, vb.Gaussian(sigma), y, input_range=None, out=tmp_path / name)
    for pair in ("ab", ("a", "plain"), "cd"):
        with pytest.raises(BadInput, match="in different units"):
            read_lines([tmp_path / name for name in pair], {}, None)
    assert SCALED in read_lines([tmp_path / "a"], {}, None)[0].threat.unit
    scales = [scale_of(vb.Run.open(tmp_path / name).certificates()) for name in ("a", "b", "c", "d", "plain")]
    assert len(set(scales)) == 5
    assert scales[-1] == ""


def test_a_table_said_to_be_floats_as_given_is_found_by_replay(tmp_path: Path) -> None:
    images = np.array([[10, 3], [200, 3]], np.uint8)
    table = Dataset(images, np.array([0, 1]), 2, ("a", "b"), "codes", True, features=("size", "age"))
    as_floats = Dataset(
        (images / np.float32(255)).astype(np.float32),
        table.labels,
        2,
        ("a", "b"),
        "codes",
        True,
        features=table.features,
    )
    certified(table, "gaussian:sigma=0.1", input_range=None, arithmetic="float", cut=0.4, out=tmp_path / "run")
    with pytest.raises(Lie):
        replay(tmp_path / "run", First(0.4), as_floats, inputs=None, progress=False)


def test_files_of_other_tools_are_written_with_a_note_on_units(tmp_path: Path) -> None:
    x, y, stats = rows(2), [0, 1, 0, 1], Standardisation.of(rows(1, 50))
    certified(x, "gaussian:sigma=1", y, input_range=None, standardise=stats, out=tmp_path / "scaled")
    certified(x, "gaussian:sigma=1", y, input_range=None, out=tmp_path / "plain")
    for layout in ("cohen", "topk"):
        assert SCALED in results_of_run(tmp_path / "scaled", layout).notes[-1]
        assert results_of_run(tmp_path / "plain", layout).notes == ()
