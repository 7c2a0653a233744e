"""Writes certificates that were made in memory to a run folder, the same as certify(out=…) writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vauban.certificates import Certificates, Claims
from vauban.errors import RunRefused
from vauban.files import json_bytes, replace_file
from vauban.runs.manifest import FILE
from vauban.runs.store import EXTENSIONS, SEAL, RunRecord, extension_lines, extensions_of
from vauban.seed import NONCE_FILE
from vauban.validation import path_of


def own_claim(certs: Certificates) -> bool:
    """Whether certificates are those that their manifest states, at its n or an extension's, not derived for other settings."""
    record = certs.record
    if record is None:
        return False
    stated, made = record.manifest.method, record.method
    if (made.settings, made.law) != (stated.settings, stated.law):
        return False
    return any(certs == one for one in record.claims().values())


def save_run(path: str | Path, record: RunRecord) -> Path:
    """Write the run folder of certificates that were made in memory, the same folder as certify(out=path) writes."""
    folder = path_of("path", path)
    folder.mkdir(parents=True, exist_ok=True)
    if any(not name.startswith(".") for name in os.listdir(folder)):
        raise RunRefused(f"{folder} is not empty: give another path")
    files = files_of(record)
    if record.secret is not None:
        record.secret.write(folder)
    for name, content in files.items():
        replace_file(folder / name, content)
    return folder


def files_of(record: RunRecord, claims: Mapping[str, Claims] | None = None) -> dict[str, bytes]:
    """Every file of the run folder of certificates that were made in memory, but for the seed; the seal is the last.

    `claims`: those of the record, if they are derived already.
    """
    record.manifest.law()  # refuses a law without a text form, which could not be read again
    texts = record.texts(record.claims() if claims is None else claims)
    files = {FILE: json_bytes(record.manifest.raw)}
    if record.nonce is not None:
        files[NONCE_FILE] = json_bytes({"announced": record.manifest.identity, "nonce": record.nonce})
    files[record.votes.file] = "".join(line + "\n" for line in record.votes.lines(record.binding)).encode()
    if extensions_of(record.method):
        files[EXTENSIONS] = "".join(extension_lines(record.method, record.binding)).encode()
    files |= {name: text.encode() for name, text in texts.items()}
    return files | {SEAL: json_bytes(record.seal(texts))}
