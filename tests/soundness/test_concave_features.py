"""Tries to break certificates with a different concave g for every feature: every pair of inputs, through the real views."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from exact_worlds import attacked, world

import vauban as vb
from vauban.errors import BadInput

HALF = Fraction(1, 2)
CASES = [
    # g of each feature, scale, budget, levels, coupling, representation, shape
    ([lambda z: z, lambda z: min(3 * z, 1), lambda z: min(z, HALF)], "1", 24, 4, "cyclic", "upper_lower", (3,)),
    ([lambda z: z / 3, lambda z: min(3 * z, 1)], "1.5", 20, 6, "arbitrary", "center_error", (2,)),
    ([lambda z: min(2 * z, 1), lambda z: z / 2], "0.6", 24, 3, "global", "center", (2, 1, 2)),
]


@pytest.mark.parametrize("case", CASES)
def test_no_attack_inside_a_radius_changes_the_answer(case: tuple, cases_tried: Callable[[int], None]) -> None:
    gs, scale, budget, levels, coupling, representation, shape = case
    smoothing = vb.Concave(
        gs, scale=scale, budget=budget, levels=levels, coupling=coupling, representation=representation
    )
    there = world(smoothing, shape)
    each = int(np.prod(shape)) // len(gs)
    tables = [[Fraction(g(Fraction(k, levels))) for k in range(levels + 1)] for g in gs for _ in range(each)]
    tables = [np.array([float(value) for value in table]) for table in tables]
    size = sum(table[there.steps[..., i]] for i, table in enumerate(tables))
    rate = budget / min(Fraction(scale), Fraction(1))
    assert (there.changed <= np.floor(float(rate) * size + 1e-9)).all()
    random, tried, broken = np.random.default_rng(2), 0, 0
    for _ in range(20):
        votes = random.choice(3, size=int(there.views.max()) + 1, p=random.dirichlet(np.ones(3)))
        some, wrong = attacked(there, size, votes, 3, 1)
        tried, broken = tried + some, broken + wrong
    cases_tried(tried)
    assert tried > 1000
    assert broken == 0


def test_equal_functions_certify_what_one_function_certifies() -> None:
    same = vb.Concave([lambda z: min(2 * z, 1)] * 3, budget=30, levels=6)
    one = vb.Concave(lambda z: min(2 * z, 1), budget=30, levels=6)
    assert same.law.views == one.law.views
    assert np.array_equal(same.law.radius_tolerating(np.arange(10)), one.law.radius_tolerating(np.arange(10)))
    x = torch.randint(0, 7, (1, 3), generator=torch.Generator().manual_seed(1))
    words = torch.arange(30)[:, None]
    first = vb.Concave(lambda z: min(2 * z, 1), budget=30, levels=6).views(x[:, :1], words, 6)
    assert torch.equal(same.views(x, words, 6)[:, [0, 3]], first)


def test_a_table_is_certified_with_a_function_for_each_feature() -> None:
    """Age may change by a year at little cost, a yes or no only at full cost."""
    model = lambda views: torch.stack([views.mean(dim=1), 1 - views.mean(dim=1)], dim=1)  # noqa: E731
    smoothing = vb.Concave([lambda z: min(4 * z, 1), lambda z: z, lambda z: z / 4], scale=2, budget=60, levels=255)
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2)
    certs = smoothed.certify(torch.tensor([[250, 240, 255]], dtype=torch.uint8), y=[0], progress=False)
    assert certs.exact
    assert (certs.radius > 0.1).all()
    assert "g_i" in certs.claim


def test_the_number_of_functions_must_be_that_of_features() -> None:
    with pytest.raises(BadInput, match="2 functions g for inputs of shape"):
        vb.Concave([lambda z: z, lambda z: z], budget=10, levels=4).views(
            torch.zeros(1, 3), torch.zeros(1, 1).long(), 4
        )
    with pytest.raises(BadInput, match="not concave"):
        vb.Concave([lambda z: z, lambda z: z * z], budget=10, levels=4)
