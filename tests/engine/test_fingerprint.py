"""A fingerprint covers what a model consists of, and is the same whenever and wherever the model is."""

import collections
import copy
import dataclasses
import functools
import logging
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.engine.fingerprint import model_fingerprint


def fingerprint(model: Any) -> str:
    return model_fingerprint(model, "model")


class Net(torch.nn.Module):
    """A model that depends on one attribute."""

    def __init__(self, held: Any = None) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)
        with torch.no_grad():
            self.inner.weight.copy_(torch.arange(8.0).view(2, 4) - 3.5)
            self.inner.bias.zero_()
        self.held = held

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        return self.inner(views)


@dataclasses.dataclass(slots=True)
class Slotted:
    kind: str


class Plain:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        return views


def judge(views: torch.Tensor, kind: str = "A", *, more: int = 0) -> torch.Tensor:
    return views


def captured(value: Any) -> Callable[[torch.Tensor], Any]:
    return lambda views: (views, value)


def nested(value: Any) -> Callable[[torch.Tensor], Any]:
    return lambda views: [value for _ in views]


def keyword(value: Any) -> Callable[..., Any]:
    def model(views: torch.Tensor, *, kind: Any = value) -> torch.Tensor:
        return views

    return model


def local_class(value: Any) -> Any:
    class Local(torch.nn.Module):
        def forward(self, views: torch.Tensor) -> Any:
            return views, value

    return Local()


def part_with(value: Any) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Sequential(Net(value)))


def method_with(value: Any) -> Any:
    return Plain(value).__call__


def hooked(value: Any) -> torch.nn.Module:
    net = Net()
    net.register_forward_hook(lambda module, inputs, output: output if value == "A" else -output)
    return net


def own_forward(value: Any) -> torch.nn.Module:
    net = Net()
    net.forward = functools.partial(judge, kind=value)  # type: ignore[method-assign]
    return net


def deep(value: Any) -> torch.nn.Module:
    for _ in range(12):
        value = [value]
    return Net(value)


PLACES: dict[str, Callable[[Any], Any]] = {
    "an attribute": Net,
    "an attribute of a part": part_with,
    "an attribute of an object": lambda value: Net(Plain(value)),
    "a slot": lambda value: Net(Slotted(value)),
    "a nested container": lambda value: Net({"a": [(value,)]}),
    "a deep container": deep,
    "a set": lambda value: Net({"other", value}),
    "a key": lambda value: Net({value: 1}),
    "a namespace": lambda value: Net(types.SimpleNamespace(kind=value)),
    "a deque": lambda value: Net(collections.deque([value])),
    "a partial's keyword": lambda value: functools.partial(judge, kind=value),
    "a partial's argument": lambda value: functools.partial(judge, torch.zeros(1), value),
    "a partial within": lambda value: Net(functools.partial(functools.partial(judge, value))),
    "a captured value": captured,
    "a value that a function within uses": nested,
    "a keyword's default": keyword,
    "a value that a class captured": local_class,
    "the object of a method": method_with,
    "a hook": hooked,
    "an own forward": own_forward,
    "a pattern": lambda value: Net(re.compile(value)),
    "an array of objects": lambda value: Net(np.array([value, None], dtype=object)),
    "a cached function": lambda value: functools.lru_cache(captured(value)),
    "a model that is compiled": lambda value: torch.compile(Net(value)),
    "a function that is compiled": lambda value: torch.compile(captured(value)),
}
SLOW = [pytest.param(place, marks=pytest.mark.slow) for place in PLACES if place.endswith("compiled")]


@pytest.mark.parametrize("place", [*(place for place in PLACES if not place.endswith("compiled")), *SLOW])
def test_another_value_is_another_model(place: str) -> None:
    make = PLACES[place]
    assert fingerprint(make("A")) == fingerprint(make("A"))
    assert fingerprint(make("A")) != fingerprint(make("B"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ([1, 23], [12, 3]),
        ((1, 2), [1, 2]),
        (torch.zeros(3), torch.ones(3)),
        (torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)),
        (np.float32(0.1), np.float32(0.2)),
        (torch.relu, torch.tanh),
        (np.tanh, np.sinh),
        (torch.float32, torch.float64),
        (torch.nn.ReLU, torch.nn.Tanh),
        (slice(1), slice(2)),
        (Path("a/w.npy"), Path("b/w.npy")),
    ],
)
def test_values_that_differ_are_told_apart(one: Any, other: Any) -> None:
    assert fingerprint(Net(one)) == fingerprint(Net(copy.deepcopy(one)))
    assert fingerprint(Net(one)) != fingerprint(Net(other))


def test_what_does_not_change_the_answers_does_not_change_the_fingerprint() -> None:
    net = Net([1, 2]).train()
    before = fingerprint(net)
    net.eval().requires_grad_(False)
    net.register_full_backward_hook(lambda *_: None)
    assert fingerprint(net) == before
    for state in (torch.Generator(), np.random.default_rng(0), logging.getLogger("a"), threading.Lock()):
        net = Net(state)
        before = fingerprint(net)
        if isinstance(state, np.random.Generator):
            state.random()
        logging.getLogger("a.new one")
        assert fingerprint(net) == before
    shared = [1.5]
    assert fingerprint(Net((shared, shared))) == fingerprint(Net(([1.5], [1.5])))


def test_a_model_that_holds_itself_has_a_fingerprint() -> None:
    def looped(kind: str) -> Net:
        net = Net({"kind": kind})
        net.held["owner"] = [net]
        return net

    assert fingerprint(looped("A")) == fingerprint(looped("A")) != fingerprint(looped("B"))


def test_long_chains_are_hashed_and_not_refused() -> None:
    held: list[Any] = []
    for _ in range(5_000):
        held = [held]
    assert fingerprint(Net(held)) == fingerprint(Net(held))


@pytest.mark.parametrize("make", [torch.jit.script, torch.fx.symbolic_trace])
def test_scripted_and_traced_models_have_one_fingerprint(make: Callable[[Any], Any]) -> None:
    made = make(Net())
    made(torch.zeros(1, 4))
    assert fingerprint(made) == fingerprint(make(Net()))
    assert fingerprint(made) != fingerprint(make(torch.nn.Sequential(Net(), torch.nn.ReLU())))


def test_a_run_leaves_the_fingerprint_as_it_is(tmp_path: Path) -> None:
    net = Net("A")
    smoothed = vb.SmoothedClassifier(net, vb.Gaussian(sigma=0.5), num_classes=2)
    before = smoothed.identity()
    smoothed.certify(torch.zeros(2, 4), [0, 1], n=200, out=tmp_path / "run")
    assert smoothed.identity() == before
    net.held = "B"
    assert smoothed.identity() != before


@pytest.mark.slow
def test_compiled_programs_leave_the_fingerprint_as_it_is() -> None:
    net = Net("A")
    smoothed = vb.SmoothedClassifier(net, vb.Gaussian(sigma=0.5), num_classes=2, compile=True)
    inside, around = fingerprint(net), fingerprint(torch.compile(net))
    smoothed.certify(torch.zeros(2, 4), [0, 1], n=200)
    called = torch.compile(net)
    called(torch.zeros(3, 4))
    assert (fingerprint(net), fingerprint(called)) == (inside, around)


SCRIPT = """
import torch
import {module}

class Base(torch.nn.Module):
    kinds = {{"a", "b", "c", "{kind}"}}
    def scale(self):
        return {scale}

class Net(Base):
    def forward(self, views):
        return {module}.answer(views * self.scale()) if "a" in {{"a", "b", "c", "d"}} else views
"""


def of_script(module: str = "json", kind: str = "x", scale: float = 1.0) -> str:
    """The fingerprint of a class that a script defines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT.format(module=module, kind=kind, scale=scale), names)
    return fingerprint(names["Net"]())


def test_classes_of_a_script_and_what_it_imports_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_script() == of_script()
    assert len({of_script(), of_script(kind="y"), of_script(scale=2.0)}) == 3
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_by_a_script.py").write_text("def answer(views): return views\n")
    before = of_script("imported_by_a_script")
    (tmp_path / "imported_by_a_script.py").write_text("def answer(views): return -views\n")
    assert of_script("imported_by_a_script") != before


@pytest.mark.slow
def test_another_process_gives_the_same_fingerprint() -> None:
    """Sets, of text above all, have another order there."""

    def there(hashing: str) -> str:
        path = f"{Path(vb.__file__).parents[1]}:{Path(__file__).parent}"
        environment = {"PYTHONHASHSEED": hashing, "PYTHONPATH": path, "PATH": "", "OMP_NUM_THREADS": "1"}
        names = [name for name in PLACES if not name.endswith("compiled")]
        lines = f"from test_fingerprint import *; print(of_script(), *(fingerprint(PLACES[p]('A')) for p in {names!r}))"
        command = [sys.executable, "-c", lines]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert there("1") == there("2")
