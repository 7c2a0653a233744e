"""Inputs that share shapes get the votes they would get alone, whatever flies with them, and no place stays empty."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import Scheduler, Work
from vauban.errors import BadInput, OutOfMemory
from vauban.laws import law
from vauban.seed import Seed
from vauban.smoothing import Gaussian, build
from vauban.smoothing.random import Stream
from vauban.stopping import AnytimeRule, Rule
from vauban.stopping import policy as stop
from vauban.stopping.policies import until_decided
from vauban.votes import CountRequests, KeptCounts, Tally, counts_at

CPU = torch.device("cpu")
SEED = Seed.of(4)
SIGMA = 0.25
X = torch.randint(0, 256, (9, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
LABELS = [1, 1, 0, 2, 1, 1, 1, 0, 1]
RULE = stop("target:radius=0.1").rule(law(f"gaussian:sigma={SIGMA}"), n=1_000, alpha=0.01)
Model = Callable[[torch.Tensor], torch.Tensor]
Line = tuple[int, str, int, tuple[int, ...]]


def sampler(
    model: Model, rows: int = 40, block: int | None = 10, in_flight: int = 1, spec: str | None = None
) -> Sampler:
    smoothing = build(spec) if spec else Gaussian(SIGMA)
    return Sampler(Network(model, CPU), smoothing, 3, 255, rows, in_flight, block=block)


def requests(rule: Rule, label: int | None, n0: int = 0, earlier: Sequence[np.ndarray] = ()) -> CountRequests:
    return until_decided(rule, label, n0, KeptCounts(None, list(earlier)))


def line(one: tuple[Tally, bool]) -> Line:
    tally, _ = one
    return tally.input, tally.stage, tally.votes, tuple(tally.counts.tolist())


def polled(
    v: Sampler, order: list[int] | None = None, rule: Rule = RULE, label: list[int] | None = LABELS, **more: object
) -> list[Line]:
    works = (Work(i, X[i], requests(rule, label[i] if label else None, 50)) for i in order or range(len(X)))
    return [line(one) for one in Scheduler(v, SEED, **more).run(works)]


def one_by_one(model: Model) -> list[Line]:
    """Each input in shapes of its own, vote by vote through the plain sampler, until the rule has decided."""
    lines, alone = [], sampler(model, rows=10, block=None)
    for i, x in enumerate(X):
        wins: list[int] = []
        for look, counts in alone.cast(x, Stream(SEED, "count", i), list(RULE.looks)):
            lines.append((i, "count", look, tuple(counts.tolist())))
            wins.append(int(counts[LABELS[i]]))
            if not RULE.decide([wins]).going[0]:
                break
    return lines


@pytest.mark.parametrize(("rows", "block"), [(10, 10), (40, 10), (40, 20), (200, 10), (70, 7), (30, 1)])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_inputs_that_share_shapes_get_the_votes_they_get_alone(
    half_spaces: Model, rows: int, block: int, in_flight: int
) -> None:
    whole = one_by_one(half_spaces)
    assert len({number for number, *_ in whole}) == len(X)
    assert len({votes for _, _, votes, _ in whole}) > 5
    assert sorted(polled(sampler(half_spaces, rows, block, in_flight))) == sorted(whole)


def test_order_and_company_change_nothing(half_spaces: Model) -> None:
    whole = sorted(polled(sampler(half_spaces)))
    assert sorted(polled(sampler(half_spaces), [8, 3, 1, 0, 2, 7, 6, 5, 4])) == whole
    assert sorted(polled(sampler(half_spaces), [8, 3]) + polled(sampler(half_spaces), [1, 0, 2, 7, 6, 5, 4])) == whole
    assert sorted(polled(sampler(half_spaces), together=True)) == whole


def test_every_smoothing_makes_the_same_views_in_any_company(half_spaces: Model) -> None:
    for spec in ("uniform:sigma=0.3", "laplace:sigma=0.3", "splitting:sigma=0.5,sampled=true", "discrete:keep=0.8"):
        rule = stop("anytime").rule(law(spec).for_shape((8,)), n=None, alpha=0.01)

        def some(v: Sampler) -> list[Line]:
            works = (Work(i, x, counts_at("count", rule.looks_until(150))) for i, x in enumerate(X))  # noqa: B023
            return sorted(line(one) for one in Scheduler(v, SEED).run(works))

        assert some(sampler(half_spaces, 40, 10, spec=spec)) == some(sampler(half_spaces, 10, None, spec=spec))


def test_it_goes_on_from_any_look(half_spaces: Model) -> None:
    whole = polled(sampler(half_spaces))
    for number in (0, 1, 4):
        mine = [np.array(counts) for i, _, _, counts in whole if i == number]
        rest = [one for one in whole if one[0] == number]
        for there in range(len(mine) + 1):
            works = [Work(number, X[number], requests(RULE, LABELS[number], earlier=mine[:there]))]
            assert [line(one) for one in Scheduler(sampler(half_spaces), SEED).run(works)] == rest[there:]


def test_with_one_input_a_shape_a_view_stands_in_the_same_row_wherever_one_begins() -> None:
    """A model that answers by row shows that the row is a function of the view's number alone."""

    def by_row(views: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.arange(len(views)) * 7 % 11 % 3, 3).float()

    alone = sampler(by_row, rows=8, block=None)
    for after in (1, 5, 8, 13):
        whole = dict(alone.cast(X[0], Stream(SEED, "count", 0), [after, 30]))
        rest = dict(alone.cast(X[0], Stream(SEED, "count", 0), [30], after=after))
        assert np.array_equal(whole[after] + rest[30], whole[30])


def test_labels_are_chosen_first_by_votes_that_do_not_count(half_spaces: Model) -> None:
    lines = polled(sampler(half_spaces), label=None)
    chosen = {i: int(np.argmax(counts)) for i, stage, _, counts in lines if stage == "choose"}
    assert set(chosen) == set(range(len(X)))
    again = polled(sampler(half_spaces), label=[chosen[i] for i in range(len(X))])
    assert sorted(one for one in lines if one[1] == "count") == sorted(again)
    stream = Stream(SEED, "choose", 2)
    alone = dict(sampler(half_spaces, 50, None).cast(X[2], stream, [50]))[50]
    assert [one[3] for one in lines if one[:2] == (2, "choose")] == [tuple(alone.tolist())]


def test_shapes_never_change_and_no_place_stays_empty_while_votes_are_wanted(half_spaces: Model) -> None:
    shapes: list[int] = []

    def spy(views: torch.Tensor) -> torch.Tensor:
        shapes.append(len(views))
        return half_spaces(views)

    told: list[int] = []
    lines = polled(sampler(spy), on_votes=told.append)
    counted = {i: votes for i, _, votes, _ in lines}
    assert set(shapes) == {40}
    assert sum(told) == sum(counted.values())
    blocks = sum(-(-votes // 10) for votes in counted.values())
    assert len(shapes) < 1.3 * blocks / 4 + 10  # alone, in shapes of one place, it would be `blocks`


def test_one_input_alone_fills_whole_shapes(half_spaces: Model) -> None:
    calls = [0]

    def spy(views: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return half_spaces(views)

    list(Scheduler(sampler(spy, 100, 10), SEED).run([Work(0, X[0], counts_at("count", [50, 1_000]))]))
    assert calls[0] == 10


def test_a_decided_input_makes_room_at_once() -> None:
    """Nine inputs decided by their first block and one that never is: the nine take three shapes, not nine turns."""
    lines: list[Line] = []

    def model(views: torch.Tensor) -> torch.Tensor:
        return torch.stack([0.5 - views.mean(1), views.mean(1) - 0.5, torch.full((len(views),), -9.0)], dim=1)

    hard, easy = torch.full((8,), 128, dtype=torch.uint8), torch.full((8,), 255, dtype=torch.uint8)
    rule = stop("target:radius=0.01").rule(law(f"gaussian:sigma={SIGMA}"), n=3_000, alpha=0.01)
    works = (Work(i, hard if i == 0 else easy, requests(rule, 1)) for i in range(10))
    for one in Scheduler(sampler(model, 90, 30), SEED).run(works):
        lines.append(line(one))
    first_end = {i: max(n for n, one in enumerate(lines) if one[0] == i) for i in range(10)}
    assert max(first_end[i] for i in range(1, 10)) < first_end[0]


@dataclass(frozen=True)
class Short(AnytimeRule):
    """Anytime, cut off."""

    def next_look(self, votes: int) -> int | None:
        look = super().next_look(votes)
        return look if look is not None and look <= 300 else None


def test_together_all_inputs_advance_side_by_side(half_spaces: Model) -> None:
    rule = Short(law(f"gaussian:sigma={SIGMA}"), 0.01)  # type: ignore[arg-type]
    seen = dict.fromkeys(range(len(X)), 0)
    for number, _, votes, _ in polled(sampler(half_spaces), rule=rule, together=True):
        seen[number] = votes
        assert max(seen.values()) <= 1.3 * max(10, min(seen.values())) + 20
    assert set(seen.values()) == {rule.looks_until(300)[-1]}


def test_a_deadline_ends_it(half_spaces: Model) -> None:
    rule = stop("anytime").rule(law(f"gaussian:sigma={SIGMA}"), n=None, alpha=0.01)
    for seconds in (0.5, 5.0, 50.0):  # a busy machine may need longer for a first look at every input
        began = time.monotonic()
        lines = polled(sampler(half_spaces), rule=rule, together=True, deadline=began + seconds)
        assert time.monotonic() >= began + seconds
        if (seen := {i for i, *_ in lines}) == set(range(len(X))):
            return
    raise AssertionError(seen)


def test_a_model_that_mixes_views_is_refused_before_inputs_share_a_shape(half_spaces: Model) -> None:
    sampler(half_spaces).probe(X)

    def relative(views: torch.Tensor) -> torch.Tensor:
        return half_spaces(views) + views.mean() * torch.tensor([1.0, 0.0, 0.0])

    def by_row(views: torch.Tensor) -> torch.Tensor:
        return half_spaces(views) + 1e-6 * torch.arange(len(views))[:, None]

    def moody(views: torch.Tensor) -> torch.Tensor:
        return half_spaces(views) + torch.rand(len(views), 3)

    for model, complaint in (
        (relative, "depends on the other views"),
        (by_row, "--block 40"),
        (moody, "random numbers"),
    ):
        with pytest.raises(BadInput, match=complaint):
            sampler(model).probe(X)
        if model is not by_row:
            with pytest.raises(BadInput, match=complaint):
                sampler(model, block=None).probe(X)
    assert not sampler(by_row, block=None).probe(X)


def test_a_block_must_divide_the_rows(half_spaces: Model) -> None:
    with pytest.raises(BadInput, match="block=15 with rows=40"):
        sampler(half_spaces, 40, 15)


def test_nan_is_noticed_only_where_it_counts(half_spaces: Model) -> None:
    def nan(views: torch.Tensor) -> torch.Tensor:
        return half_spaces(views) * float("nan")

    with pytest.raises(BadInput, match="NaN on"):
        polled(sampler(nan))


def test_running_out_of_memory_names_a_shape_that_fits_and_keeps_what_was_counted(half_spaces: Model) -> None:
    calls = [0]

    def greedy(views: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] > 5 and len(views) > 25:
            raise torch.cuda.OutOfMemoryError("no memory left")
        return half_spaces(views)

    def lines() -> Iterator[Line]:
        works = (Work(i, X[i], requests(RULE, LABELS[i])) for i in range(len(X)))
        yield from (line(one) for one in Scheduler(sampler(greedy), SEED).run(works))

    kept: list[Line] = []
    with pytest.raises(OutOfMemory, match=r"40 rows; every tally so far is kept.*--rows 20 would fit"):
        kept.extend(lines())
    kept = []
    calls[0] = 0
    try:
        for one in lines():
            kept.append(one)
    except OutOfMemory:
        pass
    assert kept
    assert set(kept) <= set(polled(sampler(half_spaces)))
