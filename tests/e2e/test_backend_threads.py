"""Threads of torch that wait sleep where another library runs the network."""

import os
import sys

import pytest

from vauban.cli.common import _yield_cores

VARIABLE = "OMP_WAIT_POLICY"


@pytest.mark.parametrize(
    ("given", "sleeps"),
    [
        ("openvino", True),
        ("onnxruntime", True),
        ("auto", True),
        ("net.onnx:input=x", True),
        ("torch", False),
        (None, False),
    ],
)
def test_the_variable_is_set_before_torch_is_loaded(
    given: str | None, sleeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv(VARIABLE, "to be restored")
    monkeypatch.delenv(VARIABLE)
    assert _yield_cores(given) == given
    assert os.environ.get(VARIABLE) == ("PASSIVE" if sleeps else None)


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv(VARIABLE, "ACTIVE")
    _yield_cores("openvino")
    assert os.environ[VARIABLE] == "ACTIVE"
