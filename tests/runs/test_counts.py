"""Counts from other tools, and claims for them, in plain text."""

from pathlib import Path

import pytest

from vauban.certificates import derive
from vauban.errors import BadInput
from vauban.laws import law
from vauban.runs.foreign_counts import read_counts


@pytest.mark.parametrize(
    "text",
    [
        "90 8 2 0\n1 99 0 1\n",
        "90,8,2,0\n1,99,0,1",
        "90, 8, 2, 0\n\n# a comment\n1\t99\t0\t1  # and one more\n",
        "9e1 8 2 0\n1.0 99 0 1",
    ],
)
def test_white_space_commas_and_comments(tmp_path: Path, text: str) -> None:
    (tmp_path / "counts.txt").write_text(text)
    counts, labels = read_counts(tmp_path / "counts.txt")
    assert counts.tolist() == [[90, 8, 2], [1, 99, 0]]
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "each row needs"),
        ("1 2\n", "each row needs"),
        ("1 2 0\n1 2 3 0\n", "line 2 has 4 columns"),
        ("1 x 0\n", "line 1: whole numbers"),
        ("0.9 0.1 0\n", "line 1: whole numbers"),
        ("nan 1 0\n", "line 1: whole numbers"),
        ("inf 1 0\n", "line 1: whole numbers"),
    ],
)
def test_bad_files_are_named_by_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "counts.txt").write_text(text)
    with pytest.raises(BadInput, match=complaint):
        read_counts(tmp_path / "counts.txt")


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_counts(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe")
    with pytest.raises(BadInput, match="not a text file"):
        read_counts(tmp_path / "binary")


def test_claims_are_rounded_down_and_empty_where_abstained() -> None:
    certs = derive([[1000, 0, 0], [500, 500, 0]], [0, 0], law("gaussian:sigma=0.5"))
    header, first, second, end = certs.to_csv().split("\n")
    assert header == "index,label,radius,abstained,truth"
    index, label, radius, abstained, truth = first.split(",")
    assert (index, label, abstained, truth) == ("0", "0", "false", "0")
    assert certs.radius[0] - 1e-9 < float(radius) <= certs.radius[0]
    assert second == "1,0,,true,0"
    assert end == ""
