"""The folder of an attack: its settings, one line of results per input, adversarial inputs, pictures and alarms."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.attacks.results import InputResult
from vauban.errors import Lie, RunRefused
from vauban.files import Log, arrays_sha256, differences, read_json, read_lines, replace_file, write_json
from vauban.runs.manifest import has_manifest

SETTINGS, RESULTS, ADVERSARIAL, TABLE = "attack.json", "results.jsonl", "adversarial.npz", "table.csv"
CURVES, GALLERY, ALARM = "curves.png", "gallery.png", "alarm"


class AttackFolder:
    """Results of one attack on disk, appended as they come; the same settings continue it."""

    def __init__(self, path: Path, settings: dict[str, Any], shape: tuple[int, ...], kind: str):
        self.path, self._shape, self._kind = path, shape, kind
        self.settings = self._begin(settings)
        found, length = read_lines(path / RESULTS, self._read)
        self.results: dict[int, InputResult] = {result.input: result for result in found}
        self._log = Log(path / RESULTS, length)

    def _begin(self, settings: dict[str, Any]) -> dict[str, Any]:
        file = self.path / SETTINGS
        if not file.exists():
            if has_manifest(self.path) or (self.path / RESULTS).exists():
                raise RunRefused(f"{self.path} holds something else than an attack: give another --out")
            write_json(file, settings)
            return settings
        kept = read_json(file)
        unlike = next(differences(kept, json.loads(json.dumps(settings)), ignore=("vauban",)), None)
        if unlike is not None:
            raise RunRefused(
                f"{self.path} holds an attack with other settings ({unlike}): give the same, or another --out"
            )
        return kept

    def keep(self, result: InputResult) -> None:
        """Append one result."""
        self.results[result.input] = result
        self._log.append(json.dumps(_line(result)))

    def close(self) -> None:
        """Close the file of results."""
        self._log.close()

    def _read(self, text: str) -> InputResult:
        said = json.loads(text)
        x = None
        if said["x"] is not None:
            try:
                raw = zlib.decompress(base64.b64decode(said["x"]))
            except zlib.error as problem:
                raise ValueError(f"the adversarial input cannot be unpacked ({problem})") from None
            x = np.frombuffer(raw, dtype=self._kind).reshape(self._shape)
            if arrays_sha256(x) != said["sha256"]:
                raise ValueError("the adversarial input is not the one that was found (sha256 differs)")
        distance = np.inf if said["distance"] is None else float(said["distance"])
        more = {key: int(said[key]) for key in ("abstained", "refuted", "views")}
        cut_short = bool(said.get("cut_short", False))  # folders of earlier versions do not say
        return InputResult(
            int(said["input"]), distance, x, said["attack"], tuple(said["answer"]), **more, cut_short=cut_short
        )


def kept_seed(path: str | Path | None) -> int | None:
    """The seed of the attack in a folder; None if there is none."""
    file = None if path is None else Path(path) / SETTINGS
    seed = read_json(file).get("seed") if file is not None and file.exists() else None
    return seed if isinstance(seed, int) else None


def _line(result: InputResult) -> dict[str, Any]:
    x = result.x
    return {
        "input": result.input,
        "distance": None if np.isinf(result.distance) else result.distance,
        "attack": result.attack,
        "answer": list(result.answer),
        "abstained": result.abstained,
        "refuted": result.refuted,
        "views": result.views,
        "cut_short": result.cut_short,
        "x": None if x is None else base64.b64encode(zlib.compress(np.ascontiguousarray(x).tobytes())).decode(),
        "sha256": None if x is None else arrays_sha256(x),
    }


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> str:
    """Write arrays as .npz, which `--data npz:path=…` reads; returns the sha256 of their values."""
    held = io.BytesIO()
    np.savez_compressed(held, allow_pickle=False, **arrays)
    replace_file(path, held.getvalue())
    return arrays_sha256(*arrays.values())


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays that `write_arrays` wrote."""
    try:
        with np.load(path, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except (OSError, ValueError) as problem:
        raise Lie(f"{path} cannot be read ({problem})") from None


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file."""
    lines = [",".join(map(str, row)) for row in (header, *rows)]
    replace_file(path, "\n".join([*lines, ""]).encode())
