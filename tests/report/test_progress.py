"""Progress without a terminal: lines on stderr."""

from contextlib import contextmanager

import pytest

from vauban.report.progress import _lines, bar


@pytest.mark.parametrize(("at_once", "said"), [(True, "attacking 3 inputs\n"), (False, "")])
def test_slow_work_is_announced_before_its_first_part(
    at_once: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with bar("attacking 3 inputs", 3, "inputs", at_once=at_once):
        assert capsys.readouterr().err == said


def test_a_line_before_any_progress_has_no_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with contextmanager(_lines)("training", 100, "steps", every=0.0) as advance:
        advance(0)
        advance(50)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "training: 0/100 steps, 0/s"
    assert second.endswith("s left")
