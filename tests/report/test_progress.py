"""Progress without a terminal: lines on stderr."""

import pytest

from vauban.report.progress import bar


@pytest.mark.parametrize(("at_once", "said"), [(True, "attacking 3 inputs\n"), (False, "")])
def test_slow_work_is_announced_before_its_first_part(
    at_once: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with bar("attacking 3 inputs", 3, "inputs", at_once=at_once):
        assert capsys.readouterr().err == said
