"""Ablated views: a uniform choice without replacement, integers on the grid, nothing of what is hidden."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from vauban.errors import BadInput
from vauban.laws.subsets import draws_needed
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import Ablation, build
from vauban.smoothing.ablation import _first_different_on_device, first_different
from vauban.smoothing.random import Stream

CPU = torch.device("cpu")


def words(count: int, size: int, start: int = 0) -> torch.Tensor:
    return Stream(Seed.of(5), "count", 0).words(start, count, size, CPU)


def kept(smoothing: Ablation, shape: tuple[int, ...], count: int, start: int = 0) -> np.ndarray:
    """Which units [count, units] each view keeps: inputs of ones are shown as one where they are kept."""
    x = torch.full((1, *shape), 255, dtype=torch.uint8)
    views = smoothing.views(x, words(count, smoothing.words(torch.Size(shape)), start), 255)
    return views[:, : shape[0]].flatten(1).numpy() == 1


@pytest.mark.parametrize(("d", "e"), [(6, 3), (7, 2), (5, 4), (4, 1), (9, 8)])
def test_every_subset_is_as_likely(d: int, e: int) -> None:
    subsets = {sum(1 << i for i in chosen): n for n, chosen in enumerate(itertools.combinations(range(d), e))}
    counts = np.zeros(len(subsets), dtype=np.int64)
    for start in range(0, 200_000, 20_000):
        codes = kept(Ablation(e), (d,), 20_000, start) @ (1 << np.arange(d))
        counts += np.bincount([subsets[c] for c in codes], minlength=len(subsets))
    assert stats.chisquare(counts).pvalue > 1e-6


def test_pixels_and_pairs_of_pixels_are_kept_as_often_as_they_should() -> None:
    d, e, n = 784, 45, 24_000  # about a million kept pixels
    masks = np.concatenate([kept(Ablation(e), (1, 28, 28), 4_000, start) for start in range(0, n, 4_000)])
    assert (masks.sum(axis=1) == e).all()
    singles = masks.sum(axis=0)
    spread = n * e / d * (1 - e / d)
    assert stats.chi2.sf(((singles - n * e / d) ** 2).sum() / spread * (d - 1) / d, d - 1) > 1e-6
    sums = masks[:, :50].sum(axis=1)  # hypergeometric: without replacement
    expected = n * stats.hypergeom.pmf(np.arange(8), d, 50, e)
    observed = np.bincount(sums, minlength=20)[:8]
    assert stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > 1e-6


@pytest.mark.parametrize(
    ("d", "e"), [(2, 1), (6, 3), (784, 45), (784, 392), (3000, 1), (50_176, 1000), (70_000, 35_000)]
)
def test_the_cpu_and_other_devices_choose_the_same(d: int, e: int) -> None:
    drawn = words(7, draws_needed(d, e))
    mask = first_different(drawn, d, e)
    assert mask.dtype == torch.bool
    assert (mask.sum(dim=1) == e).all()
    assert torch.equal(mask, _first_different_on_device(drawn, d, e))


def test_the_choice_is_the_first_different_draws_in_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        d = int(rng.integers(2, 12))
        e = int(rng.integers(1, d // 2 + 1))
        row = rng.integers(0, 2**63 - 1, size=int(rng.integers(1, 20)))  # at times too few to hold e different ones
        seen = list(dict.fromkeys(int(w) % d for w in row))[:e]
        mask = first_different(torch.from_numpy(row[None]), d, e)[0]
        assert sorted(seen) == mask.nonzero().flatten().tolist()


@pytest.mark.parametrize("null", ["multichannel", "mean"])
@pytest.mark.parametrize("unit", ["pixel", "feature"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 6, 6), (12,), (5, 4)])
@pytest.mark.parametrize("levels", [255, None])
def test_kept_pixels_are_shown_and_the_others_are_null(
    null: str, unit: str, shape: tuple[int, ...], levels: int | None
) -> None:
    smoothing = Ablation(7, null=null, unit=unit, mean=0.25 if null == "mean" else 0.5)
    x = torch.randint(1, 256, (1, *shape), dtype=torch.uint8)
    inputs = x if levels else x.float() / 255
    drawn = words(20, smoothing.words(torch.Size(shape)))
    views = smoothing.views(inputs, drawn, levels)
    assert views.dtype == torch.float32
    assert views.shape[1:] == smoothing.view_shape(torch.Size(shape))
    shown = views[:, : shape[0]]
    true = x.float() / 255
    if null == "multichannel":
        inverse = views[:, shape[0] :]
        mask = (shown + inverse).round().bool()
        assert torch.equal(inverse, torch.where(mask, (255 - x).float() / 255 if levels else 1 - true, 0.0))
        hidden = 0.0
    else:
        mask, hidden = shown != 0.25, 0.25
        mask |= true == 0.25
    assert torch.equal(shown, torch.where(mask, true.expand_as(shown), torch.tensor(hidden)))
    if unit == "pixel" and len(shape) == 3:
        assert torch.equal(mask, mask[:, :1].expand_as(mask))
        assert (mask[:, 0].flatten(1).sum(dim=1) == 7).all()
    else:
        assert (mask.flatten(1).sum(dim=1) == 7).all()


def test_views_on_the_grid_are_integers_divided_once() -> None:
    x = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    views = Ablation(30).views(x, words(50, Ablation(30).words(x.shape[1:])), 255)
    assert torch.equal((views.double() * 255).round().float() / 255, views)


@pytest.mark.parametrize(
    "text", ["ablation:retained=5", "ablation:retained=5,null=mean", "ablation:retained=19,unit=feature"]
)
@pytest.mark.parametrize("levels", [255, None])
def test_a_view_tells_nothing_of_what_it_hides(text: str, levels: int | None) -> None:
    smoothing = build(text)
    first = torch.randint(0, 256, (1, 2, 3, 4), dtype=torch.uint8)
    second = torch.randint(0, 256, (1, 2, 3, 4), dtype=torch.uint8)
    if levels is None:
        first, second = first / 255 - 0.5, second / 255 - 0.5  # negative numbers, too
    drawn = words(200, smoothing.words(torch.Size([2, 3, 4])))
    ones = torch.full_like(first, 255 if levels else 1.0)
    visible = (smoothing.views(ones, drawn, levels) == 1)[:, :2].reshape(200, 2, 3, 4)
    for row in range(200):
        mixed = torch.where(visible[row : row + 1], first, second)
        a = smoothing.views(first, drawn[row : row + 1], levels)
        b = smoothing.views(mixed, drawn[row : row + 1], levels)
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_views_are_a_function_of_the_words_and_of_their_own_input() -> None:
    smoothing = Ablation(5)
    x = torch.randint(0, 256, (10, 1, 4, 4), dtype=torch.uint8)
    drawn = words(10, smoothing.words(torch.Size([1, 4, 4])))
    together = smoothing.views(x, drawn, 255)
    assert torch.equal(together, smoothing.views(x, drawn, 255))
    for i in range(10):
        assert torch.equal(together[i], smoothing.views(x[i : i + 1], drawn[i : i + 1], 255)[0])


def test_the_choice_is_that_of_one_pixel_at_a_time_at_imagenet_size() -> None:
    n, d, e = 20, 50_176, 1000
    drawn = words(n, draws_needed(d, e))

    def one_at_a_time() -> np.ndarray:
        mask = np.zeros((n, d), dtype=bool)
        for row, taken in zip(drawn.numpy(), mask, strict=True):
            left, draw = e, 0
            while left:
                pixel = row[draw] % d
                draw += 1
                if not taken[pixel]:
                    taken[pixel] = True
                    left -= 1
        return mask

    assert np.array_equal(one_at_a_time(), first_different(drawn, d, e).numpy())


def test_a_smoothed_classifier_certifies_pixels() -> None:
    def bright(views: torch.Tensor) -> torch.Tensor:  # more white than black among what is kept
        white, black = views[:, 0].flatten(1).sum(dim=1), views[:, 1].flatten(1).sum(dim=1)
        return torch.stack([black, white], dim=1)

    smoothed = SmoothedClassifier(bright, "ablation:retained=5", num_classes=2)
    x = torch.ones(2, 1, 10, 10)
    x[1, 0, 0] = 0
    certs = smoothed.certify(x, y=[1, 1], n=2_000, seed=3)
    assert certs.radius[0] == 12  # Delta(12) < 1/2 <= Delta(13)
    assert 1 <= certs.radius[1] <= 12


def test_text_form_builds_the_same_and_wrong_ones_are_answered() -> None:
    assert build("ablation:retained=45") == Ablation(45)
    assert repr(Ablation(45, null="mean", mean=0.1307)) == "Ablation(retained=45, null=mean, mean=0.1307)"
    assert build("ablation:retained=45,null=mean").view_shape(torch.Size([3, 8, 8])) == (3, 8, 8)
    for wrong in ("ablation", "ablation:retained=-3", "ablation:retained=5,null=grey"):
        with pytest.raises(BadInput, match="ablation|one or more|multichannel"):
            build(wrong)
    with pytest.raises(BadInput, match="hides nothing"):
        Ablation(16).words(torch.Size([3, 4, 4]))


@pytest.mark.parametrize("unit", ["pixel", "feature"])
@pytest.mark.parametrize("null", ["mean", "standardised"])
def test_null_may_have_a_value_for_each_channel(null: str, unit: str) -> None:
    mean, std = (0.5, 0.25, 0.125), (0.2, 0.4, 0.5)
    scaling = {"mean": mean} if null == "mean" else {"mean": mean, "std": std}
    smoothing = Ablation(5, null=null, unit=unit, **scaling)
    assert str(build(str(smoothing.spec)).spec) == str(smoothing.spec)
    x = torch.randint(0, 256, (1, 3, 4, 4), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    drawn = words(50, smoothing.words(torch.Size((3, 4, 4))))
    views = smoothing.views(x, drawn, 255)
    shown = Ablation(5, unit=unit).views(torch.full_like(x, 255), drawn, 255)[:, :3] == 1  # which numbers are kept
    value, means, stds = x.float() / 255, torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]
    if null == "mean":
        assert torch.equal(views, torch.where(shown, value, means.expand_as(value)))
    else:
        scaled = (value - means) / stds
        expected = torch.cat([torch.where(shown, scaled, 0.0), torch.where(shown, 1 - scaled, 0.0)], dim=1)
        assert torch.allclose(views, expected, atol=1e-6)
    hidden = torch.where(shown[7], x[0], 255 - x[0])[None]
    assert torch.equal(smoothing.views(hidden, drawn[7:8], 255).view(torch.int32), views[7:8].view(torch.int32))


def test_scaling_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="have 3 channels"):
        Ablation(5, null="mean", mean=[0.1, 0.2]).law.for_shape((3, 4, 4))
    for text, message in (
        ("ablation:retained=5,null=mean,mean=0.1/nan", "finite"),
        ("ablation:retained=5,null=standardised,std=0", "above zero"),
        ("ablation:retained=5,null=mean,std=2", "no effect"),
        ("ablation:retained=5,mean=0.1/0.2", "no effect"),
    ):
        with pytest.raises(BadInput, match=message):
            build(text)


@pytest.mark.parametrize("null", ["multichannel", "mean", "standardised"])
def test_a_hidden_pixel_is_not_seen_however_large_it_is(null: str) -> None:
    smoothing = build(f"ablation:retained=1,null={null}" + (",std=0.1" if null == "standardised" else ""))
    drawn = words(64, smoothing.words(torch.Size([1, 2, 2])))
    dark, changed = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)
    changed[0, 0, 0, 0] = -3e38
    before, after = (smoothing.views(x, drawn, None) for x in (dark, changed))
    hidden = (after == before).flatten(1).all(dim=1)
    assert 32 < hidden.sum() < 64
    assert not after[hidden].isnan().any()
    only = after[~hidden].flatten(2) != before[~hidden].flatten(2)
    assert not only[..., 1:].any()
