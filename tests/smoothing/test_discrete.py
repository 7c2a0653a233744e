"""Keep-or-replace views: the right law, in integers on the grid, a pure function of the words."""

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.errors import BadInput
from vauban.laws.rounded_noise import BITS
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import Discrete, build
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")


def words(count: int, size: int) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(0, count, size, CPU)


@pytest.mark.parametrize(("keep", "values"), [(0.8, 256), (0.1, 256), (0.4, 3), (0.7, 2), (0.3, 10)])
def test_views_keep_and_replace_as_often_as_they_should(keep: float, values: int) -> None:
    x = torch.from_numpy(np.linspace(0, values - 1, 1000).astype(np.uint8))[None]
    views = Discrete(keep, values=values).views(x, words(1000, 1000), values - 1)
    shown = (views.double() * (values - 1)).round().to(torch.int64)
    assert torch.equal(shown.float() / (values - 1), views)
    assert shown.min() >= 0
    assert shown.max() <= values - 1
    expected = np.full(values, (1 - keep) / (values - 1))
    expected[0] = keep
    offsets = np.bincount((shown - x.to(torch.int64)).remainder(values).flatten().numpy(), minlength=values)
    assert stats.chisquare(offsets, expected * 1_000_000).pvalue > 1e-6


def test_every_pair_of_old_and_new_value_has_its_probability() -> None:
    keep, values = 0.45, 5
    x = torch.arange(values, dtype=torch.uint8)[None]
    views = Discrete(keep, values=values).views(x, words(200_000, values), values - 1)
    shown = (views * (values - 1)).round().to(torch.int64).numpy()
    expected = np.full((values, values), (1 - keep) / (values - 1))
    np.fill_diagonal(expected, keep)
    for value in range(values):
        observed = np.bincount(shown[:, value], minlength=values)
        assert stats.chisquare(observed, expected[value] * 200_000).pvalue > 1e-6


@pytest.mark.parametrize(("keep", "values"), [(0.8, 256), (0.4, 3), (0.7, 2), (0.5, 16384)])
def test_words_at_the_edges_and_other_devices_choose_the_same(keep: float, values: int) -> None:
    smoothing = Discrete(keep, values=values)
    table = smoothing.law.rounded(values - 1)
    drawn = np.concatenate([table.thresholds - 1, table.thresholds, [0, 2**BITS - 1], words(1, 5000).numpy()[0]])
    x = torch.full((1, len(drawn)), min(values - 1, 200), dtype=torch.uint8)
    views = smoothing.views(x, torch.from_numpy(drawn)[None], values - 1)
    searched = torch.searchsorted(torch.from_numpy(table.thresholds), torch.from_numpy(drawn), right=True)
    assert torch.equal(views[0], (searched + x[0].to(torch.int64)).remainder(values).float() / (values - 1))
    assert views[0, len(table.thresholds) * 2] == x[0, 0].float() / (values - 1)  # word 0 keeps


def test_one_view_of_each_is_the_view_of_each_alone() -> None:
    x = torch.randint(0, 256, (10, 3, 2, 2), dtype=torch.uint8)
    drawn = words(10, 12)
    together = Discrete(0.3).views(x, drawn, 255)
    assert together.shape == (10, 3, 2, 2)
    for i in range(10):
        assert torch.equal(together[i], Discrete(0.3).views(x[i : i + 1], drawn[i : i + 1], 255)[0])


def test_inputs_without_their_grid_are_refused() -> None:
    with pytest.raises(BadInput, match="8-bit"):
        Discrete(0.8).views(torch.rand(1, 4), words(2, 4), None)
    with pytest.raises(BadInput, match="values=256"):
        Discrete(0.8, values=10).views(torch.zeros(1, 4, dtype=torch.uint8), words(2, 4), 255)
    smoothed = SmoothedClassifier(lambda v: torch.stack([v[:, 0], -v[:, 0]], 1), "discrete:keep=0.8", num_classes=2)
    with pytest.raises(BadInput, match="8-bit"):
        smoothed.certify(torch.full((1, 4), 0.123456), y=[0], n=100)


def test_a_smoothed_classifier_certifies_features() -> None:
    def dark(views: torch.Tensor) -> torch.Tensor:
        zeros = (views == 0).float().mean(dim=1)
        return torch.stack([zeros, 0.05 - zeros], dim=1)

    smoothed = SmoothedClassifier(dark, "discrete:keep=0.1", num_classes=2)
    certs = smoothed.certify(torch.zeros(1, 1000, dtype=torch.uint8), y=[0], n=2_000, seed=3)
    assert certs.radius[0] == 14


def test_text_form_builds_the_same_and_wrong_ones_are_answered() -> None:
    assert build("discrete:keep=0.8,values=256") == Discrete(0.8)
    assert repr(build("discrete:keep=0.8,values=10")) == "Discrete(keep=0.8, values=10)"
    for wrong, answer in [("discrete", "keep=0.8"), ("discrete:keep=2", "below 1"), ("discrete:kept=0.8", "keep")]:
        with pytest.raises(BadInput, match=answer):
            build(wrong)


def test_codes_stay_codes_and_keep_their_shares_on_the_8_bit_grid() -> None:
    values, keep = 3, 0.7
    smoothing = Discrete(keep, values=values, codes=True)
    x = torch.arange(values, dtype=torch.uint8).repeat(400)[None]
    shown = (smoothing.views(x, words(500, x.numel()), 255).double() * 255).round().to(torch.int64)
    assert int(shown.min()) == 0
    assert int(shown.max()) == values - 1
    for code in range(values):
        at = shown[:, x[0] == code].flatten()
        shares = torch.bincount(at, minlength=values) / len(at)
        wanted = torch.full((values,), (1 - keep) / (values - 1))
        wanted[code] = keep
        assert (shares - wanted).abs().max() < 0.01
    same = Discrete(keep, values=values).views(x, words(500, x.numel()), values - 1)
    assert torch.equal((same.double() * (values - 1)).round().to(torch.int64), shown)
    assert smoothing.threat.name == "l0-codes"
    with pytest.raises(BadInput, match="has the code 3: values=3 allows 0 to 2"):
        smoothing.check(torch.tensor([[0, 2], [3, 0]], dtype=torch.uint8))
    with pytest.raises(BadInput, match="inputs are floats"):
        smoothing.check(torch.zeros(1, 2))
    with pytest.raises(BadInput, match="at most 256"):
        Discrete(keep, values=300, codes=True)
