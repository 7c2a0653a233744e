"""The integer table of rounded Gaussian noise, cell by cell at 80 digits."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.rounded_noise import RoundedNoise

WORDS = 2**63
PICTURES = [(0.05, 255), (0.12, 255), (0.25, 255), (0.5, 255), (1.0, 255), (2.0, 255)]
COARSE = [(0.5, 1), (1.0, 1), (0.25, 2), (1.0, 3), (0.3, 16)]
GRIDS = PICTURES + COARSE


def cells(noise: RoundedNoise) -> list[int]:
    """How many of the 2^63 words give each value -offset..offset."""
    edges = [0, *(int(t) for t in noise.thresholds), WORDS]
    return [b - a for a, b in pairwise(edges)]


@lru_cache
def ideal(sigma: float, levels: int, farthest: int) -> list[mpmath.mpf]:
    """P[round(levels * sigma * Z) = v] for v = -farthest..farthest, by differences of erf at 80 digits."""
    with mpmath.workdps(80):
        unit = 1 / (mpmath.sqrt(2) * mpmath.mpf(sigma) * levels)
        at = [mpmath.erf((v + mpmath.mpf(1) / 2) * unit) for v in range(farthest + 1)]
        half = [(b - a) / 2 for a, b in pairwise(at)]
        return [*half[::-1], at[0], *half]


@pytest.mark.parametrize(("sigma", "levels"), GRIDS)
def test_the_table_is_a_symmetric_distribution_in_exact_integers(sigma: float, levels: int) -> None:
    noise = GaussianLaw(sigma).rounded(levels)
    table = cells(noise)
    assert len(table) == 2 * noise.offset + 1
    assert sum(table) == WORDS
    assert min(table) >= 0
    assert table == table[::-1]


@pytest.mark.parametrize(("sigma", "levels"), GRIDS)
def test_every_cell_is_within_two_words_of_its_probability(sigma: float, levels: int) -> None:
    noise = GaussianLaw(sigma).rounded(levels)
    with mpmath.workdps(80):
        for count, p in zip(cells(noise), ideal(sigma, levels, noise.offset), strict=True):
            assert abs(count - p * WORDS) <= 2


@pytest.mark.parametrize(("sigma", "levels"), GRIDS)
def test_the_deviation_bounds_the_total_variation_tightly(sigma: float, levels: int) -> None:
    noise = GaussianLaw(sigma).rounded(levels)
    with mpmath.workdps(80):
        p = ideal(sigma, levels, noise.offset)
        inside = mpmath.fsum(abs(q - mpmath.mpf(w) / WORDS) for q, w in zip(p, cells(noise), strict=True))
        distance = (inside + 1 - mpmath.fsum(p)) / 2
        assert distance <= noise.deviation <= distance * (1 + mpmath.mpf("1e-9"))


@pytest.mark.parametrize(("sigma", "levels"), [(0.12, 255), (1.0, 3)])
def test_cells_by_integrating_the_density(sigma: float, levels: int) -> None:
    noise = GaussianLaw(sigma).rounded(levels)
    table = cells(noise)
    with mpmath.workdps(40):
        width = mpmath.mpf(sigma) * levels
        for value in {0, 1, -1, 2, noise.offset // 2, noise.offset - 1, 1 - noise.offset}:
            a, b = mpmath.mpf(value) - mpmath.mpf(1) / 2, mpmath.mpf(value) + mpmath.mpf(1) / 2
            p = mpmath.quad(lambda x: mpmath.npdf(x, 0, width), [a, b])
            assert abs(table[value + noise.offset] - p * WORDS) <= 2


@pytest.mark.parametrize(("sigma", "levels"), PICTURES)
def test_a_whole_picture_deviates_by_less_than_one_in_a_billion(sigma: float, levels: int) -> None:
    law = GaussianLaw(sigma)
    numbers = 3 * 224 * 224
    assert 0 < numbers * law.rounded(levels).deviation < 1e-9
    assert numbers * law.rounded(levels).deviation < law.deviation((3, 224, 224), levels) < 1e-9
    assert law.deviation((3, 224, 224), None) == 0.0


@pytest.mark.parametrize(("sigma", "levels"), GRIDS)
def test_words_at_a_threshold_fall_on_its_upper_side(sigma: float, levels: int) -> None:
    noise = GaussianLaw(sigma).rounded(levels)
    thresholds = [int(t) for t in noise.thresholds]
    assert thresholds == sorted(thresholds)
    some = thresholds[:: max(1, len(thresholds) // 50)] + thresholds[-3:]
    words = np.array([0, *(t - 1 for t in some), *some, WORDS - 1], dtype=np.int64)
    expected = [sum(t <= w for t in thresholds) - noise.offset for w in words.tolist()]
    assert noise(words).tolist() == expected
    assert (noise(words[:1])[0], noise(words[-1:])[0]) == (-noise.offset, noise.offset)
    assert noise(words.reshape(2, -1)).shape == (2, len(words) // 2)


@pytest.mark.parametrize(("sigma", "levels"), GRIDS)
def test_the_mirrored_word_gives_the_opposite_noise(sigma: float, levels: int) -> None:
    noise = GaussianLaw(sigma).rounded(levels)
    words = np.random.default_rng(5).integers(0, WORDS, size=2_000, dtype=np.int64)
    edges = np.concatenate([noise.thresholds, noise.thresholds - 1])
    for w in (words, edges):
        assert np.array_equal(noise(WORDS - 1 - w), -noise(w))


def test_noise_that_never_leaves_a_grid_point_is_refused() -> None:
    with pytest.raises(BadInput, match="1/255"):
        GaussianLaw(1e-4).rounded(255)
    assert GaussianLaw(3e-4).rounded(255).offset == 1


def test_a_table_for_another_sigma_is_noticed() -> None:
    wrong = GaussianLaw(0.2500001).rounded(255)
    with mpmath.workdps(80):
        p = ideal(0.25, 255, wrong.offset)
        inside = mpmath.fsum(abs(q - mpmath.mpf(w) / WORDS) for q, w in zip(p, cells(wrong), strict=True))
        assert inside / 2 > wrong.deviation
