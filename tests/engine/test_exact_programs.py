"""A compiled program makes the views of exact smoothings bit for bit as they are made without one, or it is not used."""

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from vauban.engine.enumerator import Enumerator
from vauban.engine.network import Network
from vauban.methods import CertifySettings, ExactMethod, method_for
from vauban.models import build as network
from vauban.smoothing import build
from vauban.smoothing.patches import Band

X = torch.randint(0, 256, (7, 2, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
SPECS = (
    "band:size=2",  # 6 views
    "band:size=2,count=2",  # 3 views
    "block:size=3",  # 36 views
    "splitting:sigma=0.05",  # 44 views
    "fractional:p=1/2,scale=2,budget=20",  # 40 views
    "sparse:scale=5",  # 5 views
)


class Compiler:
    """Takes the place of torch.compile: keeps what it is given, returns `replaced` of it, and counts calls of the result."""

    def __init__(self, replaced: Callable[..., Any] = lambda function: function):
        self.replaced, self.compiled, self.calls = replaced, 0, 0

    def __call__(self, function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        self.compiled += 1
        program = self.replaced(function)

        def counted(*arguments: Any) -> Any:
            self.calls += 1
            return program(*arguments)

        return counted


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first shape's views are made by a program, on the CPU too."""
    monkeypatch.setattr(Enumerator, "_may_compile_views", property(lambda self: True))
    monkeypatch.setattr("vauban.engine.enumerator.PLAIN", 0)


@pytest.fixture
def compiler(at_once: None, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler that changes nothing."""
    made = Compiler()
    monkeypatch.setattr(torch, "compile", made)
    return made


class Seen:
    """A model with five classes that keeps the views it was asked about."""

    def __init__(self) -> None:
        self.views: list[torch.Tensor] = []

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        self.views.append(views.clone())
        flat = views.flatten(1).double()
        size = (flat * torch.arange(1, flat.shape[1] + 1)).sum(dim=1)
        return torch.nn.functional.one_hot((size * 1000).long() % 5, 5).float()


def method_of(spec: str) -> ExactMethod:
    made = method_for(CertifySettings(label="votes"), build(spec).law, 5, X.shape[1:])
    assert isinstance(made, ExactMethod)
    return made


def enumerator(spec: str, rows: int = 10, precision: str = "fp32", **more: Any) -> tuple[Enumerator, Seen]:
    seen = Seen()
    asked = Network(seen, torch.device("cpu"), precision, more.pop("channels_last", False))
    return Enumerator(asked, build(spec), 5, method_of(spec).listed.views, rows, **more), seen


def cast(one: Enumerator, inputs: Any = X, begin: int = 0, end: int | None = None) -> np.ndarray:
    return np.concatenate([votes for _, votes in one.cast(inputs, begin, end)])


def without_program(one: Enumerator) -> Enumerator:
    """The same enumerator, whose views are made without a program."""
    object.__setattr__(one, "_compiles_views", lambda inputs: False)
    return one


def assert_same_bits(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted, strict=True):
        assert one.stride() == other.stride()
        assert one.dtype == other.dtype
        whole = torch.int32 if one.element_size() == 4 else torch.int16
        assert torch.equal(one.view(whole), other.view(whole))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rows", [1, 4, 10, 100])
def test_views_and_votes_are_those_made_without_a_program(spec: str, rows: int, compiler: Compiler) -> None:
    """At 100 rows the last shape of every list but one is padded; at 1 and 4 rows most shapes have views of one input."""
    (fast, found), (plain, wanted) = enumerator(spec, rows, in_flight=2), enumerator(spec, rows, in_flight=2)
    assert np.array_equal(cast(fast), cast(without_program(plain)))
    assert_same_bits(found.views, wanted.views)
    assert compiler.compiled == 1
    assert compiler.calls == len(wanted.views) + 2  # two to compare it


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("precision", "channels_last"), [("fp32", False), ("bf16", True)])
def test_programs_of_the_real_compiler_make_the_same_views(
    spec: str, precision: str, channels_last: bool, at_once: None
) -> None:
    more = {"precision": precision, "channels_last": channels_last}
    (fast, found), (plain, wanted) = enumerator(spec, 10, **more), enumerator(spec, 10, **more)
    torch._dynamo.utils.counters.clear()
    assert np.array_equal(cast(fast), cast(without_program(plain)))
    assert_same_bits(found.views, wanted.views)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert [kept is None for key, kept in fast._kept.items() if "views" in key] == [False]


@pytest.mark.parametrize("spec", SPECS)
def test_any_part_of_the_numbers_has_the_votes_of_the_whole(spec: str, compiler: Compiler) -> None:
    whole = cast(without_program(enumerator(spec)[0]))
    views, last = method_of(spec).listed.views, len(whole)
    for begin, end in ((0, 1), (3, views + 1), (views - 1, views + 1), (last // 2, last), (last - 1, last)):
        assert np.array_equal(cast(enumerator(spec)[0], X, begin, end), whole[begin:end])
    assert compiler.compiled == 5


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("most", [None, 13])
def test_resumed_ranges_have_the_votes_of_the_whole(spec: str, most: int | None, compiler: Compiler) -> None:
    """Votes that are in already end in the middle of a shape, so that a range begins there."""
    one, method = enumerator(spec, in_flight=2)[0], method_of(spec)
    views, whole = one.views, cast(without_program(enumerator(spec)[0])).reshape(len(X), -1)
    table = method.empty_votes(range(100, 107), None)
    table.cast[3, 1 : views - 1] = True
    table.votes[3, 1 : views - 1] = whole[3, 1 : views - 1]
    pending = one.pending(method, table, X, most=most)
    assert any(work.first % one.rows for work in pending)
    for _, piece, _ in one.run(pending[::-1], method):
        table.add(piece)
    assert table.cast.all()
    assert np.array_equal(table.votes, whole)
    assert compiler.compiled == 1


def test_no_shape_has_views_of_more_inputs_than_a_program_takes() -> None:
    for rows, views in itertools.product(range(1, 30), range(1, 30)):
        one = Enumerator(Network(Seen(), torch.device("cpu")), build(SPECS[0]), 5, views, rows)
        starts = range(0, rows * views, rows)
        assert max((start + rows - 1) // views - start // views + 1 for start in starts) <= one._most_inputs <= rows


def test_views_of_more_inputs_than_fit_and_those_of_probes_are_made_without_a_program(compiler: Compiler) -> None:
    one = enumerator("block:size=3")[0]
    one.probe(X)
    one.probe_entries(X[:1])
    list(one.probe_scores(X))
    spread = torch.linspace(0, 7 * 36 - 1, 10).long()
    found = one._views(X, 0, spread, compiles=True)
    assert compiler.compiled == 0
    assert_same_bits([found], [one._views(X, 0, spread)])
    few = torch.linspace(0, 2 * 36 - 1, 10).long()
    assert_same_bits([one._views(X, 0, few, compiles=True)], [one._views(X, 0, few)])
    assert compiler.calls == 3


def next_number(views: torch.Tensor) -> torch.Tensor:
    """The views, of which one number is the next float."""
    views = views.clone()
    views[-1, -1, -1, -1] = torch.nextafter(views[-1, -1, -1, -1], torch.tensor(2.0))
    return views


@pytest.mark.parametrize("changed", [next_number, lambda views: views.to(memory_format=torch.channels_last)])
def test_a_program_that_makes_other_bits_or_another_layout_is_dropped(
    changed: Callable[[torch.Tensor], torch.Tensor], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler(lambda function: lambda *arguments: changed(function(*arguments)))
    monkeypatch.setattr(torch, "compile", compiler)
    (fast, found), (plain, wanted) = enumerator("band:size=2"), enumerator("band:size=2")
    assert np.array_equal(cast(fast), cast(without_program(plain)))
    assert_same_bits(found.views, wanted.views)
    assert (compiler.compiled, compiler.calls) == (1, 2)


class OutsideTorch(Band):
    """Bands whose positions are computed by NumPy, where a trace sees no operation."""

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        return super().views(x, torch.from_numpy(words.numpy() + 1), levels)


def test_views_computed_outside_torch_are_not_kept_as_a_constant(compiler: Compiler) -> None:
    fast, plain = (Enumerator(Network(Seen(), torch.device("cpu")), OutsideTorch(2), 5, 6, 4) for _ in range(2))
    assert np.array_equal(cast(fast), cast(without_program(plain)))
    assert compiler.compiled == 1


def test_a_compiler_that_fails_changes_nothing(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: Iterator[Exception] = iter([RuntimeError("no compiler here"), torch.cuda.OutOfMemoryError("full")])

    def failing(function: Any, **how: Any) -> Any:
        raise next(problems)

    monkeypatch.setattr(torch, "compile", failing)
    (fast, found), (plain, wanted) = enumerator("sparse:scale=5"), enumerator("sparse:scale=5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(cast(fast), cast(without_program(plain)))
    assert_same_bits(found.views, wanted.views)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        cast(enumerator("sparse:scale=5")[0])


def test_views_are_compiled_on_a_gpu_once_enough_were_made_or_with_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    monkeypatch.setattr(torch, "compile", compiler)
    monkeypatch.setattr("vauban.engine.enumerator.PLAIN", 3 * 10 * X[0].numel())
    cast(enumerator("band:size=2")[0])
    assert compiler.compiled == 0  # on the CPU
    monkeypatch.setattr(Enumerator, "_may_compile_views", property(lambda self: True))
    one, seen = enumerator("band:size=2")
    cast(one)  # 5 shapes
    assert (compiler.compiled, compiler.calls) == (1, 2 + len(seen.views) - 3)
    cast(one)
    assert compiler.calls == 2 + len(seen.views) - 3
    compiler.calls = compiler.compiled = 0
    both, seen = enumerator("band:size=2", compiled=True)
    cast(both)
    assert (compiler.compiled, compiler.calls) == (2, 2 + 2 * len(seen.views))


class Decoded:
    """Inputs that are decoded when they are cloned, and not before."""

    def __init__(self, values: torch.Tensor, reads: list[int]):
        self._values, self.shape, self.dtype, self._reads = values, values.shape, values.dtype, reads

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> "Decoded":
        return Decoded(self._values[key], self._reads)

    def clone(self) -> torch.Tensor:
        self._reads.append(len(self))
        return self._values.clone()


def test_streamed_inputs_are_decoded_once_a_shape(compiler: Compiler) -> None:
    reads: list[int] = []
    fast, _ = enumerator("band:size=2")
    assert np.array_equal(cast(fast, Decoded(X, reads)), cast(without_program(enumerator("band:size=2")[0])))
    assert compiler.calls == 2 + 5
    assert reads == [2, 3, 2, 2, 1]  # of the numbers 0-9, 10-19, 20-29, 30-39, and 40 and 41


def test_the_layout_of_the_inputs_does_not_reach_the_network(compiler: Compiler) -> None:
    turned = X.to(memory_format=torch.channels_last)
    (fast, found), (plain, wanted) = enumerator("block:size=3", 4), enumerator("block:size=3", 4)
    assert np.array_equal(cast(fast, turned), cast(without_program(plain)))
    assert_same_bits(found.views, wanted.views)
    (again, found) = enumerator("block:size=3", 4)
    cast(without_program(again), turned)
    assert_same_bits(found.views, wanted.views)


def test_the_program_that_votes_is_the_one_that_was_probed(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile makes another one where views differ in layout, in type or in how autograd treats them."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    net = network("cnn-small:channels=4,classes=5,size=6", seed=0).eval()
    views = method_of("band:size=2").listed.views
    one = Enumerator(Network(net, torch.device("cpu")), build("band:size=2"), 5, views, 10, compiled=True)
    torch._dynamo.utils.counters.clear()
    one.probe(X)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    cast(one)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # and the one that makes views
