"""Files are replaced whole; links are followed, and what is no ordinary file stays what it is."""

import gzip
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from vauban.errors import CannotWrite
from vauban.files import Log, read_packed, replace_file, replace_packed


def test_a_link_is_followed_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "target"]


def test_the_gzipped_form_of_a_file_goes_only_where_a_run_may_have_one(tmp_path: Path) -> None:
    for write, left in ((replace_file, ["a", "a.gz"]), (replace_packed, ["a"])):
        (tmp_path / "a.gz").write_bytes(b"somebody's")
        write(tmp_path / "a", b"new")
        assert sorted(p.name for p in tmp_path.iterdir()) == left


@pytest.mark.parametrize("there", [["a"], ["a.gz"], ["a", "a.gz"]])
def test_a_kill_leaves_no_two_forms_that_differ(
    there: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file operation is the last one: what is read afterwards is the old content or the new one."""
    old, new = b"old", b"new"
    for stop in range(8):
        for name in there:
            (tmp_path / name).write_bytes(gzip.compress(old) if name.endswith(".gz") else old)
        left = iter([True] * stop)

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            for owner, operation in ((os, "replace"), (Path, "unlink")):
                real = getattr(owner, operation)
                patched.setattr(
                    owner,
                    operation,
                    lambda *a, real=real, left=left, **k: (real if next(left, None) else killed)(*a, **k),
                )
            with suppress(KeyboardInterrupt):
                replace_packed(tmp_path / "a", new)
        assert read_packed(tmp_path / "a") in (old, new)
        replace_packed(tmp_path / "a", new)
        assert read_packed(tmp_path / "a") == new
        assert not (tmp_path / "a.gz").exists()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    replace_file(tmp_path / "pipe", b"through")
    reader.join()
    assert got == [b"through"]
    assert (tmp_path / "pipe").is_fifo()


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="cannot be written"):
        replace_file(tmp_path / "missing" / "file", b"")


def test_threads_may_replace_the_same_file(tmp_path: Path) -> None:
    """Whichever is last: the file is whole, and nobody is told that it cannot be written."""
    path, contents = tmp_path / "file", [bytes([65 + i]) * 10_000 for i in range(6)]

    def write(content: bytes) -> None:
        for _ in range(60):
            replace_file(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write, contents))
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_line_is_whole_however_little_a_write_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.write
    monkeypatch.setattr(os, "write", lambda file, content: own(file, content[:3]))
    log = Log(tmp_path / "log", 0)
    for line in ("the first line", "a second one"):
        log.append(line)
    log.close()
    assert (tmp_path / "log").read_text() == "the first line\na second one\n"
