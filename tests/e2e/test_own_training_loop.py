"""The Python of docs/own-training-loop.md runs as it is written, and learns."""

import re
from pathlib import Path

import torch

PAGE = (Path(__file__).parents[2] / "docs" / "own-training-loop.md").read_text()


def test_the_python_of_the_page_runs() -> None:
    torch.manual_seed(0)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "own-training-loop.md", "exec"), names := {})
    assert (~names["certs"].abstained).sum() >= 4
    more = re.search(r"draw the words first:\n\n(.*?)\n\n", PAGE, re.DOTALL)
    assert more is not None
    exec(compile(re.sub(r"^    ", "", more[1], flags=re.MULTILINE), "own-training-loop.md", "exec"), names)
    assert names["loss"] > 0
    assert (names["moved"] - names["x"]).flatten(1).norm(dim=1).max() <= 0.5 + 1e-5
