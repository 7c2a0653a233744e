"""Every view votes once, in order, whatever the shape, the packing and the place where one begins."""

import functools
from typing import Any

import numpy as np
import pytest
import torch

from vauban.engine.enumerator import Enumerator
from vauban.engine.network import Network
from vauban.errors import BadInput
from vauban.methods import CertifySettings, ExactMethod, method_for
from vauban.models import build as network
from vauban.smoothing import build

X = torch.randint(0, 256, (7, 1, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
SPLITTING = "splitting:sigma=0.05"  # 44 views


def sums(views: torch.Tensor) -> torch.Tensor:
    """Five classes by the size of a view, which differ from view to view."""
    size = (views.flatten(1).double() * torch.arange(1, views[0].numel() + 1)).sum(dim=1)
    return torch.nn.functional.one_hot((size * 1000).long() % 5, 5).float()


def enumerator(model=sums, rows: int = 10, in_flight: int = 1, spec: str = SPLITTING, **more: object) -> Enumerator:
    return Enumerator(Network(model, torch.device("cpu")), build(spec), 5, 44, rows, in_flight, **more)


def all_votes(one: Enumerator, begin: int = 0, end: int | None = None) -> np.ndarray:
    firsts, votes = zip(*one.cast(X, begin, end), strict=True)
    ends = [first + len(v) for first, v in zip(firsts, votes, strict=True)]
    assert [begin, *ends[:-1]] == list(firsts)
    return np.concatenate(votes)


@functools.cache
def one_by_one() -> np.ndarray:
    smoothing = build(SPLITTING)
    return np.array(
        [int(sums(smoothing.views(x[None], torch.tensor([[j]]), 255)).argmax()) for x in X for j in range(44)]
    )


@pytest.mark.parametrize("rows", [1, 7, 10, 44, 100, 1000])
@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_every_view_votes_once_and_in_order(rows: int, in_flight: int, ahead: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("vauban.engine.enumerator._AHEAD", (ahead, 1))  # 1 on a GPU
    assert (all_votes(enumerator(rows=rows, in_flight=in_flight)) == one_by_one()).all()


def test_any_part_of_it() -> None:
    whole = one_by_one()
    for begin, end in ((0, 1), (3, 50), (43, 45), (100, 308), (307, 308)):
        assert (all_votes(enumerator(rows=20, in_flight=2), begin, end) == whole[begin:end]).all()


def test_views_sit_in_the_same_row_wherever_one_begins() -> None:
    """A model that answers by row shows that the row is a function of the number alone."""

    def row_number(views: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.arange(len(views)) % 5, 5).float()

    whole = all_votes(enumerator(row_number, rows=8))
    assert (all_votes(enumerator(row_number, rows=8, in_flight=3), 77) == whole[77:]).all()


def method() -> ExactMethod:
    made = method_for(CertifySettings(label="votes"), build(SPLITTING).law, 5, X.shape[1:])
    assert isinstance(made, ExactMethod)
    return made


@pytest.mark.parametrize("most", [None, 1, 13, 60, 1_000])
@pytest.mark.parametrize(("rows", "in_flight"), [(10, 1), (8, 3), (100, 2)])
def test_pieces_of_ranges_are_the_votes_of_all_and_every_vote_is_told(
    rows: int, in_flight: int, most: int | None
) -> None:
    """Whatever the ranges, and whoever casts them: shapes are the same, and pieces of one input each say which votes they are."""
    one, told = enumerator(rows=rows, in_flight=in_flight), list[int]()
    table = method().empty_votes(range(100, 107), None)
    table.cast[2, 5:30] = True  # these are in already
    table.votes[2, 5:30] = one_by_one().reshape(7, 44)[2, 5:30]
    pending = one.pending(method(), table, X, most=most)
    assert sum(work.stop - work.first for work in pending) == 7 * 44 - 25
    for work in pending[::-1]:
        left = work
        for key, piece, last in one.run([work], method(), on_votes=told.append):
            assert key == work.key
            left = left.after(piece)
            assert last == (left.first == work.stop)
            table.add(piece)
    assert sum(told) == 7 * 44 - 25
    assert table.cast.all()
    assert (table.votes.ravel() == one_by_one()).all()


def test_sets_of_classes() -> None:
    def chances(views: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])).repeat(len(views), 1)

    votes = all_votes(enumerator(chances, threshold=0.3 - 1e-4))
    assert votes.tolist() == [[1, 1, 0, 0, 0]] * 308
    assert votes.dtype == bool
    assert not all_votes(enumerator(chances, threshold=0.6)).any()


def test_nan_is_refused_with_and_without_a_threshold() -> None:
    def nan(views: torch.Tensor) -> torch.Tensor:
        return torch.full((len(views), 5), float("nan"))

    for threshold in (None, 0.3):
        with pytest.raises(BadInput, match="NaN on 10 views"):
            all_votes(enumerator(nan, threshold=threshold))
        with pytest.raises(BadInput, match="NaN"):
            enumerator(nan, threshold=threshold).probe(X)


def test_probe_is_content_with_an_honest_model() -> None:
    enumerator().probe(X)
    small = network("cnn-small:channels=1,classes=5,size=6", seed=0).eval()
    enumerator(small, rows=25).probe(X)


def test_probe_finds_answers_that_change() -> None:
    def moody(views: torch.Tensor) -> torch.Tensor:
        return sums(views) + torch.rand(len(views), 5)

    with pytest.raises(BadInput, match="draws random numbers"):
        enumerator(moody).probe(X)


@pytest.mark.parametrize("rows", [2, 3, 10, 25, 49, 100])
def test_probe_finds_views_that_are_not_judged_alone(rows: int) -> None:
    def by_mean(views: torch.Tensor) -> torch.Tensor:
        return sums(views) + views.mean()

    def by_rest(views: torch.Tensor) -> torch.Tensor:
        """What only depends on the batch as a set, and so survives any change of order."""
        rest = int((views * 1020).round().long().sum()) % 5
        return torch.nn.functional.one_hot(torch.full((len(views),), rest), 5).float()

    for model in (by_mean, by_rest):
        with pytest.raises(BadInput, match="depends on the other views"):
            enumerator(model, rows=rows).probe(X)


def test_probe_is_content_with_a_model_that_reuses_its_answer() -> None:
    buffer = torch.zeros(100, 5)
    enumerator(lambda views: buffer[: len(views)].copy_(sums(views)), rows=25).probe(X)


def test_whole_scores_can_vote_with_a_threshold() -> None:
    votes = all_votes(enumerator(lambda views: (9 * sums(views)).long(), threshold=0.5))
    assert (votes.argmax(axis=1) == one_by_one()).all()
    with pytest.raises(BadInput, match="complex"):
        all_votes(enumerator(lambda views: sums(views).to(torch.complex64)))


def test_probe_finds_scores_that_depend_on_the_row() -> None:
    def by_row(views: torch.Tensor) -> torch.Tensor:
        return sums(views) + 1e-6 * torch.arange(len(views))[:, None]

    with pytest.raises(BadInput, match="at 10 rows"):
        enumerator(by_row).probe(X)


def test_a_wrong_answer_is_named() -> None:
    with pytest.raises(BadInput, match=r"\(10, 5\) are needed"):
        enumerator(lambda views: torch.zeros(len(views), 4)).probe(X)


def test_views_that_are_tried_first_lie_among_those_that_vote() -> None:
    """17,599,999 is no float32: rounded, the last view that is tried belonged to an input after the last."""
    many = X[:1].expand(400_000, 1, 6, 6)
    one = enumerator(rows=10)
    assert one.probe(many)
    assert next(iter(one.probe_scores(many))).shape == (10, 5)
    assert one.probe_entries(many)
