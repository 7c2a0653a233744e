"""Lines of tallies are exact, bound to their run, and a file of them survives being torn."""

import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

from vauban.errors import Lie, VaubanError
from vauban.files import Log, read_lines
from vauban.votes import SampledVotes, Tally

RUN = "a" * 64
FILE = SampledVotes.file


def table() -> SampledVotes:
    return SampledVotes(range(100), 3, lambda number: 10 if number == 0 else None, truth=[0] * 100)


def tally(i: int, votes: int = 10) -> Tally:
    return Tally(i, "count", votes, np.array([votes - 3, 0, 3], dtype=np.int64))


def write(folder: Path, tallies: list[Tally], length: int = 0) -> None:
    log = Log(folder / FILE, length)
    try:
        for one in tallies:
            log.append(table().line(one, RUN))
    finally:
        log.close()


def read(folder: Path, run: str = RUN) -> tuple[list[Tally], int]:
    return read_lines(folder / FILE, lambda line: table().parse(line, run))


def fill(folder: Path, count: int = 5) -> bytes:
    write(folder, [tally(i) for i in range(count)])
    return (folder / FILE).read_bytes()


def test_lines_come_back_as_they_went(tmp_path: Path) -> None:
    content = fill(tmp_path)
    tallies, length = read(tmp_path)
    assert length == len(content)
    assert [(t.input, t.stage, t.votes, t.counts.tolist()) for t in tallies] == [
        (i, "count", 10, [7, 0, 3]) for i in range(5)
    ]


def test_a_file_torn_at_any_byte_loses_at_most_its_last_line(tmp_path: Path) -> None:
    content = fill(tmp_path)
    for cut in range(len(content) + 1):
        (tmp_path / FILE).write_bytes(content[:cut])
        tallies, length = read(tmp_path)
        assert len(tallies) == content[:cut].count(b"\n")
        write(tmp_path, [tally(i) for i in range(len(tallies), 5)], length)
        assert (tmp_path / FILE).read_bytes() == content


def test_a_corrupt_middle_is_refused_with_its_line_number(tmp_path: Path) -> None:
    content = fill(tmp_path)
    lines = content.split(b"\n")
    for damage in (b"", b"{}", b"garbage", lines[2][:-5], lines[2].replace(b'"0":7', b'"0":8'), b"\xff\xfe", b"[1]"):
        (tmp_path / FILE).write_bytes(b"\n".join([*lines[:2], damage, *lines[3:]]))
        with pytest.raises(Lie, match="line 3"):
            read(tmp_path)


def test_any_single_altered_byte_is_noticed(tmp_path: Path) -> None:
    content = fill(tmp_path, 2)
    for place in range(len(content) - 1):
        (tmp_path / FILE).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(Lie):
            read(tmp_path)


def test_a_line_of_another_run_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(Lie, match="line 1.*another run"):
        read(tmp_path, "b" * 64)


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [([7, 0, 4], "sum to 11"), ([7, 0, 3, 0, 1], "class 4 of 3"), ([13, 0, -3], "counts -3 votes")],
)
def test_impossible_counts_are_refused(tmp_path: Path, counts: list[int], complaint: str) -> None:
    line = table().line(Tally(0, "count", 10, np.array(counts)), RUN)
    (tmp_path / FILE).write_text(line + "\n")
    with pytest.raises(Lie, match=complaint):
        read(tmp_path)


def digest(tallies: list[Tally]) -> str:
    kept = table()
    kept.take(tallies, lambda number: f"line {number}")
    return kept.digest(RUN)


def test_the_digest_does_not_depend_on_order() -> None:
    tallies = [tally(i) for i in range(5)]
    assert digest(tallies) == digest(tallies[::-1])
    assert digest(tallies) != digest(tallies[1:])


def test_a_full_disk_keeps_every_earlier_line_and_says_what_to_do(tmp_path: Path) -> None:
    """In a child process whose files may not grow beyond 1 kB, as on a full disk."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write(tmp_path, [tally(i) for i in range(100)])
        except VaubanError as problem:
            os._exit(0 if "make room and run the same command again" in str(problem) else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tallies, length = read(tmp_path)
    assert len(tallies) > 5
    assert [t.input for t in tallies] == list(range(len(tallies)))
    assert length == (tmp_path / FILE).stat().st_size
