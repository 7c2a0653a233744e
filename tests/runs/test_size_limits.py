"""Small folders that unpack to very much are refused in little memory and time, and so is what no file of a run is."""

import gzip
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.errors import BadInput, Lie, VaubanError
from vauban.files import most_unpacked, read_lines, read_packed
from vauban.laws.ablation import AblationLaw
from vauban.poisoning.votes import run_folder
from vauban.poisoning.votes.importing import import_votes
from vauban.runs.verify import verify_run

X = np.linspace(120, 250, 24).astype(np.uint8).reshape(6, 1, 2, 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    smoothed = vb.SmoothedClassifier(lambda views: torch.ones(len(views), 2), vb.Gaussian(sigma=0.25), num_classes=2)
    smoothed.certify(X, [0] * 6, n=100, seed=1, out=folder / "run", progress=False)
    votes = np.zeros((4, 11), int)
    np.savez(
        folder / "votes.npz",
        votes=votes,
        labels=[0, 1, 2, 0],
        num_classes=3,
        partition="hash:partitions=11",
        spread=1,
        threat="samples",
    )
    import_votes(folder / "votes.npz", folder / "parts")
    return folder


def bomb(name: str, content: bytes) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, 9))

    return forge


def archive(folder: Path, packing: int, rows: int) -> None:
    """Ballots of so many rows, all alike."""
    header = np.lib.format.magic(1, 0)
    said = repr({"descr": "|u1", "fortran_order": False, "shape": (rows, 3)}).encode()
    said += b" " * (63 - (len(header) + 2 + len(said)) % 64) + b"\n"
    with zipfile.ZipFile(folder / "ballots.npz", "w", packing) as opened:
        opened.writestr("counts.npy", header + len(said).to_bytes(2, "little") + said + bytes(3 * rows))


MIB = 1 << 20


@pytest.mark.parametrize("name", ["tallies.jsonl", "claims.csv", "manifest.json"])
def test_a_gzipped_file_that_unpacks_to_much_is_refused(name: str, made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made / "run", tmp_path / "run"))
    bomb(name, b"ab\n" * (32 * MIB // 3))(folder)
    with pytest.raises(Lie, match="unpacks to more than"):
        verify_run(folder)


def test_the_first_bad_line_ends_the_reading(tmp_path: Path) -> None:
    """Of very many lines none is taken apart behind it: splitting them at once took sixty times their size."""
    import tracemalloc

    (tmp_path / "a").write_bytes(b"1\nx\n" + b"1\n" * (2 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(Lie, match="line 2"):
            read_lines(tmp_path / "a", int)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()
    (tmp_path / "b").write_bytes(b"1\n22\n3")
    assert read_lines(tmp_path / "b", int) == ([1, 22], 5)
    assert read_lines(tmp_path / "none", int) == ([], 0)


@pytest.mark.parametrize(
    ("packing", "rows", "why"),
    [
        (zipfile.ZIP_BZIP2, 4, "neither stored as they are, nor packed by deflate or LZMA"),
        (zipfile.ZIP_LZMA, 8 * MIB, "unpacks to more than 1 MiB"),
        (zipfile.ZIP_DEFLATED, 8 * MIB, "unpacks to more than"),
        (zipfile.ZIP_LZMA, 5, "votes on 5 inputs, not 4"),
    ],
)
def test_an_archive_that_no_votes_fill_is_refused(
    packing: int, rows: int, why: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "_ALWAYS_READ", MIB)
    monkeypatch.setattr(run_folder, "most_unpacked", lambda size: 100 * size)
    folder = Path(shutil.copytree(made / "parts", tmp_path / "parts"))
    archive(folder, packing, rows)
    with pytest.raises(Lie, match=why):
        verify_run(folder)


@pytest.mark.parametrize("always", [1 << 29, 1 << 12])
def test_votes_that_all_agree_are_read_again(always: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are packed to very little, so that a run whose votes would unpack to more than is read is written unpacked."""
    monkeypatch.setattr(run_folder, "_ALWAYS_READ", always)
    monkeypatch.setattr(run_folder, "most_unpacked", lambda size: 250 * size)
    votes = np.repeat(np.arange(1_000) % 3, 4_000).reshape(1_000, 4_000).astype(np.uint8)
    np.savez(tmp_path / "votes.npz", votes=votes, labels=votes[:, 0], num_classes=3)
    import_votes(tmp_path / "votes.npz", tmp_path / "parts", defense="dpa", keep_votes=True)
    assert verify_run(tmp_path / "parts").inputs == 1_000
    assert (tmp_path / "parts" / "ballots.npz").stat().st_size < (100_000 if always > MIB else 5_000_000)


def test_what_is_packed_as_runs_are_is_read_whatever_its_size(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 4, 20 * MIB, dtype=np.uint8).tobytes()
    (tmp_path / "a.gz").write_bytes(gzip.compress(content, 1))
    assert read_packed(tmp_path / "a") == content
    assert most_unpacked(0) == 16 * MIB


@pytest.mark.parametrize(
    ("total", "retained"), [(10**7, 5 * 10**6), (10**7, 3), (784, 45), (20, 3), (60, 30), (41, 20)]
)
def test_numbers_of_outcomes_are_not_computed_where_they_are_not_used(total: int, retained: int) -> None:
    law = AblationLaw(retained=retained, features=total)
    outcomes = None if total == 10**7 and retained > 3 else math.comb(total, retained)
    rounded = law.rounded_up(0.123)
    if outcomes is None or outcomes >= 10**12:
        assert rounded == 0.123
    else:
        assert rounded >= 0.123


@pytest.mark.parametrize("name", ["tallies.jsonl", "claims.csv"])
def test_pipes_devices_and_folders_are_refused_by_whoever_opens_a_run(name: str, made: Path, tmp_path: Path) -> None:
    for number, put in enumerate((os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"))):
        folder = Path(shutil.copytree(made / "run", tmp_path / f"run-{number}"))
        (folder / name).unlink()
        put(folder / name)
        with pytest.raises(VaubanError, match="a pipe or a device|is a folder, where a run has a file"):
            vb.Run.open(folder)


def test_digits_of_counts_are_those_that_everybody_reads(tmp_path: Path) -> None:
    from vauban.runs.foreign_counts import read_counts

    for text in ("1_000 0 0", "\u0661\u0660 0 0"):
        (tmp_path / "counts.txt").write_text(text + "\n", encoding="utf-8")
        with pytest.raises(BadInput, match="whole numbers are needed"):
            read_counts(tmp_path / "counts.txt")


@pytest.mark.slow
def test_verify_of_a_folder_of_a_megabyte_takes_little_memory(made: Path, tmp_path: Path) -> None:
    """In a process of its own with 3 GiB of address space: what a gigabyte of lines or lists would need is far more."""
    folder = Path(shutil.copytree(made / "run", tmp_path / "run"))
    raw = json.loads((folder / "manifest.json").read_text())
    assert raw
    for name, content in (
        ("manifest.json", b'{"a":[' + b"[]," * (48 * MIB // 3) + b"1]}"),
        ("claims.csv", b"a\n" * (120 * MIB)),
    ):
        bomb(name, content)(copied := Path(shutil.copytree(folder, tmp_path / name)))
        done = subprocess.run(
            [sys.executable, "-m", "vauban", "verify", str(copied)],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert done.returncode == 1, done.stderr
        assert "memory" not in done.stderr
