"""Smoothings are found by class name, whatever other threads import meanwhile."""

import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

import vauban as vb
from vauban import smoothing


@pytest.fixture
def importing() -> Iterator[None]:
    """Another thread that adds and removes modules, with as many switches between threads as Python allows."""
    ended, interval = threading.Event(), sys.getswitchinterval()
    names = [f"a_module_of_this_test_{number}" for number in range(1_000)]

    def work() -> None:
        while not ended.is_set():
            sys.modules.update((name, ModuleType(name)) for name in names)
            for name in names:
                del sys.modules[name]

    thread = threading.Thread(target=work, daemon=True)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)


@pytest.mark.usefixtures("importing")
def test_a_name_is_looked_up_while_another_thread_imports() -> None:
    """A service's batch failed for good when a request's first import came between."""
    for _ in range(500):
        assert not hasattr(smoothing, "other_arithmetic")
        assert not hasattr(vb, "other")


def test_smoothings_are_found_by_class_name() -> None:
    assert smoothing.Gaussian is vb.Gaussian
    assert issubclass(smoothing.Concave, smoothing.Smoothing)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = smoothing.Nothing
