"""The shifts of flow noise against a slow reference, and the radii the thesis prints."""

import math

import mpmath
import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.flow import FlowLaw, edges, planes
from vauban.laws.topk import radius

PROBABILITY = st.floats(1e-12, 1 - 1e-12)
SIGMA = st.floats(1e-4, 10.0)


def reference(flow: FlowLaw, p: float, r: float) -> mpmath.mpf:
    """The most that probability p can become, at 40 digits, from the cdf and the quantile of one flow."""
    norm = mpmath.mpf(r) * (mpmath.sqrt(2) if flow.ground == "l2" else 1)
    q = mpmath.mpf(p)
    if flow.law == "uniform":
        return min(mpmath.mpf(1), q + norm / (2 * mpmath.sqrt(3) * mpmath.mpf(flow.sigma)))
    b = mpmath.mpf(flow.sigma) / mpmath.sqrt(2)
    if flow.bound == "paper":
        return min(mpmath.mpf(1), q * mpmath.exp(norm / b))
    quantile = b * mpmath.log(2 * q) if q < 0.5 else -b * mpmath.log(2 * (1 - q))
    z = quantile + norm
    return mpmath.exp(z / b) / 2 if z < 0 else 1 - mpmath.exp(-z / b) / 2


@examples(300)
@given(
    PROBABILITY,
    st.floats(0.0, 8.0),
    SIGMA,
    st.sampled_from([("laplace", "exact"), ("laplace", "paper"), ("uniform", "exact")]),
    st.sampled_from(["l1", "l2"]),
)
def test_shifts_are_those_of_a_slow_reference_and_err_on_the_safe_side(p, steps, sigma, kind, ground) -> None:
    flow = FlowLaw(sigma, kind[0], ground, kind[1])
    r = steps * sigma
    with mpmath.workdps(40):
        most = reference(flow, p, r)
        least = reference(flow, 1 - mpmath.mpf(p), r)
        least = 1 - least if kind[1] == "exact" else mpmath.mpf(p) * mpmath.mpf(p) / reference(flow, p, r)
        assert flow.most(p, r) >= most * (1 - mpmath.mpf(10) ** -13)
        assert flow.most(p, r) <= most * (1 + mpmath.mpf(10) ** -9)
        if kind[1] == "paper" and most == 1:
            return
        assert flow.least(p, r) <= least * (1 + mpmath.mpf(10) ** -13)
        assert flow.least(p, r) >= least * (1 - mpmath.mpf(10) ** -9) - mpmath.mpf(10) ** -14


@examples(60)
@given(st.floats(0.5001, 1 - 1e-9), SIGMA)
def test_top_one_radii_have_their_closed_forms(p, sigma) -> None:
    b, half = sigma / math.sqrt(2), sigma * math.sqrt(3)
    with mpmath.workdps(40):
        q = mpmath.mpf(p)
        truth = {
            FlowLaw(sigma): -b * mpmath.log(2 * (1 - q)),
            FlowLaw(sigma, bound="paper"): b / 2 * mpmath.log(q / (1 - q)),
            FlowLaw(sigma, "uniform"): half * (2 * q - 1),
        }
        for flow, exact in truth.items():
            for ground, factor in (("l1", mpmath.mpf(1)), ("l2", mpmath.sqrt(2))):
                there = FlowLaw(sigma, flow.law, ground, flow.bound)
                found = mpmath.mpf(float(radius(there, [p], [[1 - p]])[0]))
                assert found * factor <= exact * (1 + mpmath.mpf(10) ** -15)
                assert found * factor >= exact - sigma * mpmath.mpf(10) ** -9


def test_the_exact_bound_beats_the_papers_as_much_as_it_should() -> None:
    for p, gain in ((0.6, 1.1), (0.99, 1.7)):
        exact, paper = (radius(FlowLaw(0.01, bound=bound), [p], [[1 - p]])[0] for bound in ("exact", "paper"))
        assert exact / paper == pytest.approx(gain, abs=0.02)
    b = 0.01 / math.sqrt(2)  # equation 5.18
    assert radius(FlowLaw(0.01, bound="paper"), [0.9], [[0.1]])[0] == pytest.approx(b / 2 * math.log(9), rel=1e-9)
    # equation 5.20: p >= e^(4 rho_2 / sigma) (1 - p)
    assert radius(FlowLaw(0.01, "laplace", "l2", "paper"), [0.9], [[0.1]])[0] == pytest.approx(
        0.01 / 4 * math.log(9), rel=1e-9
    )


@examples(40)
@given(
    st.lists(st.floats(0.01, 1.0), min_size=4, max_size=6), st.integers(1, 3), st.sampled_from(["laplace", "uniform"])
)
def test_top_k_radii_are_never_above_a_slow_search(weights, k, kind) -> None:
    p = np.sort(np.array(weights) / (sum(weights) * (1 + 1e-9)))[::-1]
    flow = FlowLaw(0.3, kind)
    rivals = p[1 : k + 1][::-1]
    sums = np.minimum(np.cumsum(rivals), 1 - p[0])
    found = float(radius(flow, p[:1], sums[None])[0])
    with mpmath.workdps(30):

        def stays(r: mpmath.mpf) -> bool:
            label = 1 - reference(flow, 1 - mpmath.mpf(p[0]), r)
            return label > min(reference(flow, s, r) / (t + 1) for t, s in enumerate(sums))

        if not stays(mpmath.mpf(0)):
            assert math.isnan(found)
            return
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while stays(high):
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if stays(middle) else (low, middle)
        if math.isnan(found):
            assert low < 1e-9
        else:
            assert low - 1e-9 <= found <= high


def test_sizes_of_flow_plans() -> None:
    assert [edges(s) for s in [(5,), (1, 5), (3, 1, 5), (1, 28, 28), (28, 28), (2, 2, 2)]] == [4, 4, 12, 1512, 1512, 8]
    assert planes((7,)) == (1, 1, 7)
    for wrong in [(), (1,), (3, 1, 1), (1, 2, 3, 4)]:
        with pytest.raises(BadInput, match="flow noise needs"):
            law("flow:sigma=1").for_shape(wrong)


def test_text_forms_and_threats() -> None:
    assert law("flow:sigma=0.01") == FlowLaw(0.01)
    assert law("flow:sigma=0.01,law=uniform,ground=l2").spec == FlowLaw(0.01, "uniform", "l2").spec
    assert law("flow:sigma=1").threat.ball == "open"
    assert "ground metric l1" in law("flow:sigma=1").threat.sentence()
    assert "ground metric l2" in law("flow:sigma=1,ground=l2").threat.sentence()
    assert law("flow:sigma=1").deviation((1, 28, 28), 255) == 0.0
    for wrong, answer in [
        ("flow", "flow:sigma=0.01"),
        ("flow:sigma=-1", "above zero"),
        ("flow:sigma=1,law=gaussian", "laplace, uniform"),
        ("flow:sigma=1,law=splitting", "laplace, uniform"),
        ("flow:sigma=1,ground=l3", "l1, l2"),
        ("flow:sigma=1,bound=exakt", "did you mean 'exact'"),
        ("flow:sigma=1,law=uniform,bound=paper", "bound=paper is for Laplace noise"),
    ]:
        with pytest.raises(BadInput, match=answer):
            law(wrong)
    with pytest.raises(BadInput):
        FlowLaw(math.nan)
