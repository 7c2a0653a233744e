"""Writes certificates that were made in memory to a run folder, the same as certify(out=…) writes."""

from __future__ import annotations

import os
from pathlib import Path

from vauban.errors import RunRefused
from vauban.files import replace_file, write_json
from vauban.runs.manifest import FILE
from vauban.runs.store import EXTENSIONS, RunRecord, extension_lines, extensions_of, write_claims
from vauban.seed import write_nonce


def save_run(path: str | Path, record: RunRecord) -> Path:
    """Write the run folder of certificates that were made in memory, the same folder as certify(out=path) writes."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    if any(not name.startswith(".") for name in os.listdir(folder)):
        raise RunRefused(f"{folder} is not empty: give another path")
    if record.secret is not None:
        record.secret.write(folder)
    record.manifest.law()  # refuses a law without a text form, which could not be read again
    write_json(folder / FILE, record.manifest.raw)
    if record.nonce is not None:
        write_nonce(folder, record.manifest.identity, record.nonce)
    replace_file(
        folder / record.votes.file, "".join(line + "\n" for line in record.votes.lines(record.binding)).encode()
    )
    if extensions_of(record.method):
        replace_file(folder / EXTENSIONS, "".join(extension_lines(record.method, record.binding)).encode())
    write_claims(folder, record)
    return folder
