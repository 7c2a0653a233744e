"""The front door: predict and certify as a user calls them."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

import vauban as vb
from vauban.bounds.ranks import least_votes, least_votes_with
from vauban.errors import BadInput
from vauban.laws.gaussian import GaussianLaw
from vauban.prediction import predict_method

Model = Callable[[torch.Tensor], torch.Tensor]
X = torch.stack([torch.full((16,), v) for v in (0.0, 51 / 255, 127 / 255, 1.0)])


@pytest.fixture
def smoothed(half_spaces: Model) -> vb.SmoothedClassifier:
    return vb.SmoothedClassifier(half_spaces, vb.Gaussian(sigma=0.5), num_classes=3)


def test_certify_given_labels(smoothed: vb.SmoothedClassifier) -> None:
    certs = smoothed.certify(X, [0, 0, 1, 2], n=2_000, alpha=1e-6, seed=1)
    assert certs.label.tolist() == [0, 0, 1, 2]
    assert np.array_equal(np.isnan(certs.radius), certs.abstained)
    assert not certs.abstained[[0, 2, 3]].any()
    # The mean of 16 coordinates moves by |delta| / 4: the first cut is (0.25 - mean) * 4 away in L2.
    for i, distance in [(0, 1.0), (3, 1.0), (2, (0.75 - 127 / 255) * 4)]:
        assert 0 < certs.radius[i] < distance
    assert certs.counts.sum(axis=1).tolist() == [2_000] * 4
    assert certs.accuracy(0.0) == 1 - certs.abstained.mean()
    assert certs.accuracy_claim(0.0, rho=1e-3) <= certs.accuracy(0.0)


def test_the_radius_approaches_the_true_one(half_spaces: Model) -> None:
    smoothed = vb.SmoothedClassifier(half_spaces, vb.Gaussian(sigma=0.5), num_classes=3)
    certs = smoothed.certify(X[1:2], [0], n=200_000, bounds="simuem", seed=3)
    mean, spread = 51 / 255, 0.5 / 4
    p0 = norm.cdf((0.25 - mean) / spread)
    p1 = norm.cdf((0.75 - mean) / spread) - p0
    true = 0.25 * (norm.ppf(p0) - norm.ppf(p1))
    assert true - 0.02 < certs.radius[0] <= true


def test_votes_that_are_not_counted_choose_the_label(smoothed: vb.SmoothedClassifier) -> None:
    certs = smoothed.certify(X, n=1_000, n0=100, seed=1)
    assert certs.label[[0, 2, 3]].tolist() == [0, 1, 2]
    with pytest.raises(BadInput, match="true labels"):
        certs.accuracy(0.1)
    assert certs.against([0, 0, 1, 2]).accuracy(0.1) >= 0.5
    given = smoothed.certify(X, certs.label, n=1_000, seed=1)
    assert np.array_equal(given.counts, certs.counts)


def test_top_k_needs_a_label_and_grows_with_k(smoothed: vb.SmoothedClassifier) -> None:
    with pytest.raises(BadInput, match="k=2 with labels chosen by votes"):
        smoothed.certify(X, k=2, n=1_000)
    one = smoothed.certify(X, [0, 0, 1, 2], k=1, n=2_000, bounds="simuem", seed=1)
    two = smoothed.certify(X, [0, 0, 1, 2], k=2, n=2_000, bounds="simuem", seed=1)
    both = ~one.abstained & ~two.abstained
    assert both.any()
    assert (two.radius[both] >= one.radius[both]).all()


def test_predict(smoothed: vb.SmoothedClassifier) -> None:
    predictions = smoothed.predict(X, k=1, n=1_000, seed=1)
    assert [predictions[i] for i in (0, 2, 3)] == [(0,), (1,), (2,)]
    assert len(list(predictions)) == 4
    few = smoothed.predict(torch.full((1, 16), 0.25), k=1, n=200, seed=1)
    assert few[0] is None
    assert few.labels.mask.all()
    assert few.abstained.tolist() == [True]
    assert smoothed.predict(X, k=2, n=1_000, seed=1)[1] == (0, 1)


def test_same_seed_same_votes_and_no_seed_fresh_votes(smoothed: vb.SmoothedClassifier) -> None:
    def counts(seed: int | None) -> list[list[int]]:
        return smoothed.certify(X, [0, 0, 1, 2], n=500, seed=seed).counts.tolist()

    assert counts(5) == counts(5)
    assert counts(5) != counts(6)
    assert counts(None) != counts(None)


def test_arithmetic_follows_the_input(half_spaces: Model) -> None:
    smoothed = vb.SmoothedClassifier(half_spaces, "gaussian:sigma=0.5", num_classes=3)
    assert smoothed.deviation(smoothed.prepare(X)) > 0
    assert (
        "every change to another row of whole numbers from 0 to 255" in smoothed.certify(X, [0, 0, 1, 2], n=100).claim
    )
    pictures = X.view(4, 1, 4, 4)
    assert (
        "every change to another 8-bit picture whose L2 norm" in smoothed.certify(pictures, [0, 0, 1, 2], n=100).claim
    )
    off_grid = X * 0.999 + 1e-4
    assert smoothed.deviation(smoothed.prepare(off_grid)) == 0
    certs = smoothed.certify(off_grid, [0, 0, 1, 2], n=2_000, seed=1)
    assert not certs.abstained[0]
    assert "every change whose L2 norm" in certs.claim


def test_a_module_votes_in_evaluation_mode_and_is_left_as_it_was() -> None:
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(self.training)
            return x

    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.9).eval(), Spy())
    smoothed = vb.SmoothedClassifier(module, vb.Gaussian(0.5), num_classes=3)
    for call in (lambda: smoothed.certify(torch.zeros(1, 4), [0], n=100), lambda: smoothed.predict(torch.zeros(1, 4))):
        call()
        assert seen
        assert not any(seen)
        assert [part.training for part in module.modules()] == [True, True, False, True]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"k": 3}, "k=3 of 3 classes"),
        ({"k": 0}, "k=0"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"alpha": 1.0}, "alpha=1.0"),
        ({"alpha": math.nan}, "alpha=nan"),
        ({"n": 9}, "n=9 can certify nothing at alpha=0.001.*the least is 10"),
        ({"n": 0}, "the least is 10"),
        ({"bounds": "simuen"}, "did you mean 'simuem'"),
        ({"y": [0, 0, 1, 3]}, "label 3 of input 3"),
        ({"y": [0]}, "4 inputs"),
    ],
)
def test_bad_settings_are_refused_before_any_vote(settings: dict, complaint: str) -> None:
    def never(views: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a vote was cast")

    smoothed = vb.SmoothedClassifier(never, vb.Gaussian(0.5), num_classes=3)
    arguments = {"y": [0, 0, 1, 2], "n": 1_000} | settings
    with pytest.raises(BadInput, match=complaint):
        smoothed.certify(X, **arguments)
    if "y" not in settings and "bounds" not in settings:
        with pytest.raises(BadInput):
            smoothed.predict(X, **{"n": 1_000, **settings})


def test_unknown_names_are_answered() -> None:
    with pytest.raises(AttributeError, match="SmoothedClassifier"):
        _ = vb.SmoothClassifier
    with pytest.raises(BadInput, match="n0=0"):
        vb.SmoothedClassifier(lambda v: v, vb.Gaussian(0.5), num_classes=3).certify(X, n=100, n0=0)
    with pytest.raises(BadInput, match="num_classes=1"):
        vb.SmoothedClassifier(lambda v: v, vb.Gaussian(0.5), num_classes=1)


def test_a_plan_speaks_of_the_inputs_that_are_allowed(half_spaces: Model) -> None:
    for x, allowed, words in [
        (X * 10 - 3.2, None, "inputs of any size"),
        (X * 10 - 3.2, (-4.0, 8.0), "inputs in [-4,8]"),
        (X * 0.99, (0.0, 1.0), "inputs in [0,1]"),
        (X.view(4, 1, 4, 4) * 0.99, (0.0, 1.0), "pictures in [0,1]"),
        ((X * 255).round().to(torch.uint8), None, "inputs in [0,1]"),  # of 8 bits, whatever else is allowed
    ]:
        smoothed = vb.SmoothedClassifier(half_spaces, vb.Gaussian(sigma=0.5), num_classes=3, input_range=allowed)
        assert words in smoothed.plan(x, n=1_000, seconds=0.01).threat


@pytest.mark.parametrize(
    ("deviation", "n", "complaint"),
    [
        (0.0, 10, r"n=10 can decide nothing at alpha=0.001 \(top-1\): the least is 11$"),
        (5e-5, 12, "the least is 13$"),  # 12 votes take 0.0006 off alpha, and what is left needs 13
        (5e-5, 20, "give a smaller n, the least is 13$"),  # nothing is left
        (5e-5, 30, "give a smaller n, the least is 13$"),
        (1e-4, 11, "nor can any other n: the noise deviates by 0.0001 in each view.* give a larger alpha$"),
    ],
)
def test_the_least_n_of_predict_counts_what_the_deviation_takes_off_alpha(
    deviation: float, n: int, complaint: str
) -> None:
    made = {"k": 1, "alpha": 0.001, "seed": None}
    with pytest.raises(BadInput, match=complaint):
        predict_method(GaussianLaw(0.5), 3, (16,), deviation, n=n, **made)
    if "the least is" in complaint:
        predict_method(GaussianLaw(0.5), 3, (16,), deviation, n=int(complaint.rstrip("$").split()[-1]), **made)


def test_the_least_n_of_predict_is_the_first_that_can_decide() -> None:
    for k, deviation in itertools.product((1, 2, 3), (0.0, 1e-7, 1e-6, 4e-6, 1e-5, 5e-5)):
        able = (n for n in range(1, 400) if (left := 0.001 - n * deviation) > 0 and least_votes(k, left) <= n)
        assert least_votes_with(deviation, k, 0.001) == next(able, None)


def test_a_run_is_written_to_and_read_from_the_home_folder(
    smoothed: vb.SmoothedClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    x, y = torch.full((2, 4), 0.9), [1, 1]
    certs = smoothed.certify(x, y, n=100, seed=1, out="~/run", progress=False)
    assert (tmp_path / "run" / "seal.json").exists()
    assert not (tmp_path / "~").exists()
    assert vb.Run.open("~/run").certificates() == certs
    assert vb.Run.open("~/run").verify()
    for wrong, said in (
        ({"out": 3}, "^out=3: a path"),
        ({"out": "~/run", "extend": "200"}, "^extend='200': the number"),
    ):
        with pytest.raises(BadInput, match=said):
            smoothed.certify(x, y, n=100, seed=1, progress=False, **wrong)


def test_a_class_in_place_of_a_model_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^model is the class Identity: .* such as an instance of it, Identity\(\)"):
        vb.SmoothedClassifier(torch.nn.Identity, "gaussian:sigma=0.5", num_classes=2)


def test_a_plan_without_a_speed_calls_no_model() -> None:
    smoothed = vb.SmoothedClassifier(lambda views: pytest.fail("called"), "gaussian:sigma=0.5", num_classes=2)
    plan = smoothed.plan(X, n=1_000, seconds=None)
    assert (plan.votes_per_second, plan.seconds, plan.votes) == (None, None, 4_000)
    assert plan.largest_radius is not None
    assert "votes_per_second" not in plan.to_json()
