"""Reads a run folder by the specification alone (docs/run-folder.md) and recomputes its radii; nothing of Vauban is imported.

It covers one kind of run: Gaussian noise, a fixed number of votes, top 1, the bound binocp, not announced and not extended.
"""

import csv
import hashlib
import json
from pathlib import Path

from scipy.special import ndtri
from scipy.stats import beta


def recomputed_radii(folder: Path) -> dict[int, tuple[float | None, float | None]]:
    """For each input its recomputed radius and the one in claims.csv, None where abstained; ValueError where a hash is wrong."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    identity = _sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    lines = (folder / "tallies.jsonl").read_text().splitlines()
    tallies = [_checked(line, identity) for line in lines]
    order = sorted(range(len(lines)), key=lambda i: [tallies[i][key] for key in ("input", "stage", "votes")])
    seal = json.loads((folder / "seal.json").read_bytes())
    found = {
        "manifest.json": identity,
        "tallies.jsonl": _sha256("\n".join(lines[i] for i in order)),
        "claims.csv": _sha256((folder / "claims.csv").read_text()),
    }
    if any(seal[name] != digest for name, digest in found.items()):
        raise ValueError("the seal does not match")
    rows = csv.DictReader((folder / "claims.csv").read_text().splitlines())
    claimed = {int(row["index"]): float(row["radius"]) if row["radius"] else None for row in rows}
    return {number: (_radius(number, manifest, tallies), claimed[number]) for number in manifest["data"]["index"]}


def _radius(number: int, manifest: dict, tallies: list[dict]) -> float | None:
    settings = manifest["settings"]
    mine = [tally for tally in tallies if tally["input"] == number]
    (last,) = (tally for tally in mine if tally["stage"] == "count" and tally["votes"] == settings["n"])
    if settings["label"] == "given":
        label = manifest["data"]["label"][manifest["data"]["index"].index(number)]
    else:
        (first,) = (tally["counts"] for tally in mine if tally["stage"] == "choose")
        label = min(first, key=lambda name: (-first[name], int(name)))
    wins = last["counts"].get(str(label), 0)
    p = beta.ppf(settings["alpha"], wins, settings["n"] - wins + 1) if wins else 0.0
    p -= manifest["inputs"]["deviation_per_view"]
    sigma = float(manifest["smoothing"].removeprefix("gaussian:sigma="))
    return sigma * float(ndtri(p)) if p > 0.5 else None


def _checked(line: str, binding: str) -> dict:
    tally = json.loads(line)
    body = line[: line.rindex(',"check":')] + "}"
    if tally["check"] != _sha256(f"{binding}\n{body}")[:16]:
        raise ValueError("the check of a line does not match")
    return tally


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
