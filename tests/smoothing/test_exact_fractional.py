"""Exact variable-width views: those of Definition C.4 for every outcome of the list, however coordinates are coupled."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.smoothing import Concave, Fractional, Smoothing, build

LEVELS = 7
SHAPE = (2, 2, 3)


def small(**options: object) -> Fractional:
    return Fractional("1/2", "1.5", budget=30, levels=LEVELS, **options)


def listed(smoothing: Fractional | Concave) -> list[tuple[int, int] | None]:
    """The list of outcomes, made anew from the weights: (width, place), or None where a coordinate is ablated."""
    law = smoothing.law
    made = [(j, s) for j, times in law.design.weights for _ in range(times) for s in range(j)]
    return made + [None] * (law.views - len(made))


def bin_of(x: int, outcome: tuple[int, int] | None) -> tuple[Fraction, Fraction]:
    """Definition C.4: (lower, upper)."""
    if outcome is None:
        return Fraction(0), Fraction(1)
    width, s = Fraction(outcome[0], LEVELS), Fraction(2 * outcome[1] + 1, 2 * LEVELS)
    upper = width * math.ceil((Fraction(x, LEVELS) - s) / width) + s
    return max(upper - width, Fraction(0)), min(upper, Fraction(1))


def shown(lower: Fraction, upper: Fraction, representation: str) -> list[Fraction]:
    center = (lower + upper) / 2
    return {
        "upper_lower": [upper, lower],
        "center": [center],
        "center_center": [center, center],
        "center_error": [center, (upper - lower) / 2],
    }[representation]


def reference(smoothing: Fractional | Concave, x: np.ndarray) -> np.ndarray:
    """Every view [views, ...] of one input, number by number."""
    law, outcomes = smoothing.law, listed(smoothing)
    starts = law.starts(x.shape).reshape(-1) if law.coupling != "arbitrary" else None
    table = law.permutations(x.shape) if law.coupling == "arbitrary" else None
    views = []
    for v in range(law.views):
        numbers = []
        for i, value in enumerate(x.reshape(-1).tolist()):
            if table is not None:
                outcome = outcomes[table[v, i]]
            elif law.coupling == "cyclic":
                outcome = outcomes[(v + starts[i]) % law.views]
            else:
                outcome = outcomes[v]
                if outcome is not None:
                    outcome = outcome[0], (outcome[1] + int(starts[i])) % outcome[0]
            numbers.append(shown(*bin_of(value, outcome), law.representation))
        parts = [np.array([float(n[part]) for n in numbers]).reshape(x.shape) for part in range(len(numbers[0]))]
        views.append(np.concatenate(parts))
    return np.stack(views)


def all_views(smoothing: Smoothing, x: torch.Tensor) -> torch.Tensor:
    return smoothing.views(x[None], torch.arange(smoothing.law.views)[:, None], LEVELS)


@pytest.mark.parametrize("coupling", ["cyclic", "global", "arbitrary"])
@pytest.mark.parametrize("representation", ["upper_lower", "center", "center_center", "center_error"])
def test_views_are_those_of_the_definition(coupling: str, representation: str) -> None:
    made = small(coupling=coupling, representation=representation, offsets=4)
    for seed in range(3):
        x = torch.randint(0, LEVELS + 1, SHAPE, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
        found = all_views(made, x)
        assert found.dtype == torch.float32
        assert found.shape == (45, *made.view_shape(torch.Size(SHAPE)))
        assert np.allclose(found.numpy(), reference(made, x.numpy()), atol=1e-7)


def test_views_of_a_metric_of_ones_own_are_those_of_the_definition() -> None:
    for scale, views in ((2, 60), ("0.75", 30)):
        made = vb.Concave(lambda z: min(2 * z, 1), scale=scale, budget=30, levels=LEVELS)
        assert made.law.views == views
        x = torch.randint(0, LEVELS + 1, SHAPE, dtype=torch.uint8)
        assert np.allclose(all_views(made, x).numpy(), reference(made, x.numpy()), atol=1e-7)
        assert made.words(torch.Size(SHAPE)) == 1
        assert made.view_shape(torch.Size(SHAPE)) == (4, 2, 3)


@pytest.mark.parametrize("coupling", ["cyclic", "global", "arbitrary"])
def test_views_are_a_function_of_the_words_rest(coupling: str) -> None:
    made = small(coupling=coupling)
    assert made.words(torch.Size(SHAPE), LEVELS) == 1
    x = torch.randint(0, LEVELS + 1, (10, *SHAPE), dtype=torch.uint8)
    words = torch.randint(0, 2**63 - 1, (10, 1))
    kept, inputs = words.clone(), x.clone()
    together = made.views(x, words, LEVELS)
    assert torch.equal(words, kept)
    assert torch.equal(x, inputs)
    assert torch.equal(together, made.views(x, words % made.law.views, LEVELS))
    assert torch.equal(together, made.views(x.long(), words, LEVELS))
    for i in range(10):
        assert torch.equal(together[i], made.views(x[i : i + 1], words[i : i + 1], LEVELS)[0])
        assert torch.equal(together[i], all_views(made, x[i])[int(words[i]) % made.law.views])


def test_couplings_differ_and_all_of_them_ablate_as_much() -> None:
    x = torch.full((1, 8, 8), 3, dtype=torch.uint8)
    seen = {c: all_views(small(coupling=c), x) for c in ("cyclic", "global", "arbitrary")}
    whole = {c: (views[:, 0] == 1) & (views[:, 1] == 0) for c, views in seen.items()}
    assert whole["cyclic"].sum() == whole["global"].sum() == whole["arbitrary"].sum() > 0
    assert set(whole["global"].flatten(1).double().mean(1).tolist()) == {0.0, 1.0}
    assert not torch.equal(seen["cyclic"], seen["arbitrary"])
    assert not torch.equal(seen["cyclic"], all_views(small(offsets=1), x))
    assert any(len(torch.unique(view[0])) > 1 for view in seen["global"])


def test_full_size_views_are_bins_around_the_input() -> None:
    made = Fractional("1/3", 18)
    x = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    views = made.views(x, torch.arange(0, 18000, 500)[:, None], 255)
    assert views.shape == (36, 6, 32, 32)
    assert (views[:, 3:] <= x / 255).all()
    assert (views[:, :3] >= x / 255).all()
    halves = (views.double() * 510).round()
    assert torch.equal((halves / 510).float(), views)


def test_texts() -> None:
    assert build("fractional:p=1/2,scale=18") == Fractional("1/2", 18) == Fractional(0.5, 18.0)
    assert repr(Fractional("1/3", 2.5, offsets=3, coupling="global")) == (
        "Fractional(p=1/3, scale=5/2, offsets=3, coupling=global)"
    )
    with pytest.raises(BadInput, match="known: arbitrary, cyclic, global"):
        Fractional("1/2", 18, coupling="none")
    made = Concave(lambda z: min(z, Fraction(1, 2)), scale=3, representation="center")
    assert repr(made).startswith("Concave(g=")
    assert made == Concave(
        [min(Fraction(k, 255), Fraction(1, 2)) for k in range(256)], scale=3, representation="center"
    )
    assert made != Concave(lambda z: min(z, Fraction(1, 3)), scale=3, representation="center")
    with pytest.raises(BadInput, match="make it in Python"):
        Concave.from_spec(made.spec)
    with pytest.raises(BadInput, match="not concave"):
        Concave(lambda z: z**2)
