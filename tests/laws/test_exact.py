"""Ballots and how many changed views a label survives, against exhaustive search."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.laws import exact, law
from vauban.laws.exact import Ballots, ExactLaw, digest, leads, offsets_of, points_of, tolerated
from vauban.laws.splitting import ExactSplittingLaw

OFFSETS = [[365, 212, 342], [138, 111, 336]]
DIGEST = "01cec5767affd8de5ea782e4fd6bf6f327589724fcdf0cbc4e49069fbf7032dd"
LATTICE = "cb77a8046e92f23f1a3ca148bb012f646ab038450c71fa604aa33ead28f76a85"


def in_top(counts: tuple[int, ...], label: int, k: int) -> bool:
    order = sorted(range(len(counts)), key=lambda c: (-counts[c], c))
    return label in order[:k]


def survived(counts: tuple[int, ...], label: int, k: int) -> int:
    """The largest number of votes that may be cast anew, by looking at every way to do it; -1 if none."""
    total = sum(counts)
    least = total + 1
    for other in product(range(total + 1), repeat=len(counts)):
        if sum(other) == total and not in_top(other, label, k):
            least = min(least, sum(abs(a - b) for a, b in zip(counts, other, strict=True)) // 2)
    return least - 1


def worlds() -> list[tuple[tuple[int, ...], int, int]]:
    small = [(classes, total) for classes, most in ((2, 9), (3, 7), (4, 5)) for total in range(1, most)]
    return [
        (counts, label, k)
        for classes, total in small
        for counts in product(range(total + 1), repeat=classes)
        if sum(counts) == total
        for label in range(classes)
        for k in range(1, classes)
    ]


def test_tolerated_is_what_exhaustive_search_finds(cases_tried: Callable[[int], None]) -> None:
    tried = worlds()
    for counts, label, k in tried:
        found = int(tolerated([counts], [label], k)[0])
        true = survived(counts, label, k)
        assert found <= true, (counts, label, k)
        if k == 1 or true < counts[label]:
            assert found == min(true, sum(counts)), (counts, label, k)
    cases_tried(len(tried))


def test_a_forgotten_tie_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ties(counts: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return leads(counts, labels) + (np.arange(counts.shape[1]) < labels[:, None])

    monkeypatch.setattr(exact, "leads", without_ties)
    assert any(int(tolerated([c], [label], k)[0]) > survived(c, label, k) for c, label, k in worlds()[:500])


def test_top_one_is_the_formula_of_the_issue() -> None:
    rng = np.random.default_rng(0)
    counts = rng.multinomial(1000, [0.5, 0.3, 0.1, 0.1], size=500)
    for label in range(4):
        rivals = [[row[j] + (j < label) for j in range(4) if j != label] for row in counts]
        gaps = counts[:, label] - np.max(rivals, axis=1)
        expected = np.where(gaps >= 0, gaps // 2, -1)
        assert (tolerated(counts, np.full(500, label)) == expected).all()


def test_a_row_does_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(1)
    counts, labels = rng.multinomial(60, [0.4, 0.3, 0.2, 0.1], size=50), rng.integers(0, 4, 50)
    for k in (1, 2, 3):
        alone = [int(tolerated(counts[i : i + 1], labels[i : i + 1], k)[0]) for i in range(50)]
        assert tolerated(counts, labels, k).tolist() == alone


def test_counts_and_winners_of_ballots() -> None:
    ballots = Ballots(np.array([[0, 2, 2, 1], [1, 0, 0, 1]]), 3)
    assert ballots.counts.tolist() == [[1, 1, 2], [2, 2, 0]]
    assert ballots.winners.tolist() == [2, 0]
    assert not ballots.sets
    sets = np.array([[[True, False], [True, True], [False, False]]])
    assert Ballots(sets, 2).counts.tolist() == [[2, 1]]
    assert Ballots(sets, 2).sets


def test_counts_that_are_not_one_vote_per_view_are_refused() -> None:
    noise = ExactSplittingLaw(sigma=0.5)
    with pytest.raises(BadInput, match="441 views"):
        noise.radius_of_counts([[441, 0], [440, 0]], [0, 0])
    assert noise.radius_of_counts([[441, 0]], [0]) == pytest.approx(220 / 255)


def test_k_of_all_classes_is_refused() -> None:
    with pytest.raises(BadInput, match="below the number of classes"):
        tolerated([[3, 1]], [0], 2)


def test_offsets_never_change() -> None:
    """They are part of what a run proves: pinned to the bits."""
    assert offsets_of("random", 0, (2, 3), 441, 255).tolist() == OFFSETS
    assert offsets_of("random", 1, (2, 3), 441, 255).tolist() != OFFSETS
    assert digest(offsets_of("random", 0, (2, 3), 441, 0)) == DIGEST
    assert digest(offsets_of("lattice", 0, (3, 32, 32), 3091, 255)) == LATTICE
    assert offsets_of("lattice", 0, (2, 1, 3), 441, 255).tolist() == [[[0, 251, 61]], [[127, 378, 188]]]


def test_a_lattice_is_that_of_the_plastic_ratio() -> None:
    """The points of a plain formula in floating-point numbers, up to its rounding."""
    ratio = 1.32471795724474602596
    down, across = np.mgrid[0:40, 0:50]
    plain = (down / ratio + across / ratio**2) % 1
    assert np.allclose(points_of((40, 50)) / 2**64, plain, atol=1e-12)
    assert np.allclose(points_of((50,)) / 2**64, np.arange(50) * (5**0.5 - 1) / 2 % 1, atol=1e-12)


@pytest.mark.parametrize(("count", "window"), [(3091, 255), (441, 255), (18_000, 983)])
def test_a_lattice_shows_a_little_of_every_part(count: int, window: int) -> None:
    """Squares of 8 x 8 pixels show about as much as each other in every view; with random offsets they do not."""

    def unevenness(layout: str) -> float:
        offsets = offsets_of(layout, 0, (1, 32, 32), count, window)[0]
        views = np.linspace(0, count, 50, endpoint=False, dtype=np.int64)[:, None, None]
        shown = (offsets + views) % count < window
        return float(shown.reshape(50, 4, 8, 4, 8).sum(axis=(2, 4)).std(axis=(1, 2)).mean())

    assert unevenness("lattice") < 0.6 * unevenness("random")


@pytest.mark.parametrize("text", ["splitting:sigma=0.5", "fractional:p=1/2,scale=2", "sparse:scale=9"])
def test_a_layout_is_part_of_the_law(text: str) -> None:
    made = law(f"{text},layout=lattice")
    assert isinstance(made, ExactLaw)
    assert str(made.spec) == f"{text},layout=lattice"
    assert law(f"{text},layout=random") == law(text)
    assert not made.same_views(law(text))
    assert made.views_hash((3, 8, 8)) != law(text).views_hash((3, 8, 8))  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="a lattice is always the same"):
        law(f"{text},layout=lattice,offsets=1")
    with pytest.raises(BadInput, match="lattice, random"):
        law(f"{text},layout=grid")


def test_exact_is_the_default_and_sampled_is_asked_for() -> None:
    assert isinstance(law("splitting:sigma=0.5"), ExactLaw)
    assert isinstance(law("splitting:sigma=0.5,sampled=false"), ExactLaw)
    assert not law("splitting:sigma=0.5,sampled=true").exact
    with pytest.raises(BadInput, match="sampled=perhaps"):
        law("splitting:sigma=0.5,sampled=perhaps")
    assert not law("splitting:sigma=0.5").same_views(law("splitting:sigma=0.5,sampled=true"))
