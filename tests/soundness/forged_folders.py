"""Small honest runs of every kind, and what a clever forger can do to their folders without the model: see `reseal`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vauban as vb
from vauban.data import Dataset
from vauban.errors import VaubanError
from vauban.files import read_json, write_json
from vauban.laws.law import Law
from vauban.poisoning import Ensemble, Partition, SklearnTrainer
from vauban.poisoning.votes import poisoning_manifest, run_folder
from vauban.poisoning.votes.run_folder import InputSource
from vauban.report.wording import spoken, wording
from vauban.runs import manifest as manifests
from vauban.runs.sections import Selection
from vauban.runs.store import PICTURE, read_record, write_claims
from vauban.standardise import Standardisation
from vauban.streamed import Source, Streamed, Unreadable
from vauban.votes import checked_line

Edit = Callable[[Path], Any]
Json = dict[str, Any]

MANIFEST, SEAL, CLAIMS, TALLIES, BALLOTS = "manifest.json", "seal.json", "claims.csv", "tallies.jsonl", "ballots.jsonl"
NONCE, PUBLISHED = "nonce.json", "ab" * 16
COUNTS = "counts.jsonl"
LINES = (TALLIES, BALLOTS, COUNTS, "extensions.jsonl")


def pictures() -> Dataset:
    """Twelve pictures of 2 x 2, from dark to bright, in three classes."""
    values = np.linspace(0, 255, 12).round().astype(np.uint8)
    images = np.broadcast_to(values[:, None, None, None], (12, 1, 2, 2)).copy()
    return Dataset(images, np.repeat([0, 1, 2], 4), 3, ("dark", "grey", "bright"), "tiny", True)


class Thirds(torch.nn.Module):
    """Three classes cut by the mean of a view."""

    def __init__(self, cut: float = 0.3):
        super().__init__()
        self.cut = torch.nn.Parameter(torch.tensor(cut))

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Scores [rows, 3]."""
        mean = views.flatten(1).mean(dim=1)
        return torch.stack([self.cut - mean, 0.2 - (mean - 0.5).abs(), mean - 0.7], dim=1)


def rows_of_a_table() -> Dataset:
    """Twelve rows of two features of different size, in three classes by the first one."""
    first = np.linspace(-100, 100, 12, dtype=np.float32)
    table = np.stack([first, np.linspace(0.01, 0.02, 12, dtype=np.float32)], axis=1)
    names = ("dark", "grey", "bright")
    return Dataset(table, np.repeat([0, 1, 2], 4), 3, names, "table", True, features=("size", "age"))


def training() -> Standardisation:
    """Statistics of other rows, by which the table is standardised."""
    return Standardisation.of(rows_of_a_table().images * np.float32([1.1, 1.2]))


class First(torch.nn.Module):
    """Three classes cut by the first feature, in its standardised units."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = torch.nn.Parameter(torch.tensor(0.6))

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Scores [rows, 3]."""
        first = views[:, 0]
        return torch.stack([-first, self.cut - first.abs(), first], dim=1)


def damaged() -> Dataset:
    """The pictures as files of which that of picture 4 cannot be read."""
    whole = pictures()

    def read(number: int) -> Any:
        if number == 4:
            raise Unreadable("4.png cannot be decoded")
        return whole.images[number]

    streamed: Any = Streamed(Source(12, read, lambda number: f"{number}.png"), workers=0)
    taken = Selection(12, b"names of files".hex().ljust(64, "0"), every=1)
    return replace(whole, images=streamed, taken=taken)


class ByRow(Thirds):
    """The same, with scores that depend a little on the row."""

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Scores [rows, 3]."""
        return super().forward(views) + 1e-6 * torch.arange(len(views))[:, None] * torch.tensor([1.0, 0.0, -1.0])


class Noisy(Thirds):
    """The same, random by design."""

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Scores [rows, 3]."""
        return super().forward(views) + 0.05 * torch.randn(len(views), 3)


@dataclass(frozen=True)
class Forgery:
    """`kind`: what is forged, in words. `run`: in which honest run. `caught`: by what; "nothing", or "no harm" where the folder
    claims no more than is true. `says`: a pattern of the sentence that refuses it, the words by which verify names the limit, or
    why it does no harm. `model`, `data`: with which ones the forger lets the run be replayed."""

    kind: str
    run: str
    forge: Edit
    caught: str
    says: str
    model: Callable[[], torch.nn.Module] = Thirds
    data: Callable[[], Dataset] = pictures


RUNS: dict[str, Json] = {
    "fixed": {"smoothing": "gaussian:sigma=0.25", "n": 200, "alpha": 0.01},
    "chosen": {"smoothing": "laplace:sigma=0.25", "n": 100, "n0": 20, "alpha": 0.01},
    "sequential": {"smoothing": "gaussian:sigma=0.25", "n": 1_000, "alpha": 0.01, "stop": "target:radius=0.05"},
    "exact": {"smoothing": "splitting:sigma=0.1"},
    "float": {"smoothing": "gaussian:sigma=0.25", "n": 100, "alpha": 0.01, "arithmetic": "float"},
    "rows": {"smoothing": "gaussian:sigma=0.25", "n": 200, "alpha": 0.01, "model": ByRow()},
    "counts": {"smoothing": "splitting:sigma=0.1", "keep": "counts"},
    "shuffled": {
        "smoothing": "gaussian:sigma=0.25",
        "n": 100,
        "alpha": 0.01,
        "data": pictures().select(2, 5, shuffle=3),
    },
    "skipped": {
        "smoothing": "gaussian:sigma=0.25",
        "n": 100,
        "alpha": 0.01,
        "data": damaged().select(2, 6).without([4]),
    },
    "standardised": {
        "smoothing": "gaussian:sigma=0.25",
        "n": 100,
        "alpha": 0.01,
        "model": First(),
        "data": rows_of_a_table().select(2, 6),
        "arithmetic": "float",
        "input_range": None,
        "standardise": training(),
    },
    "random": {"smoothing": "gaussian:sigma=0.25", "n": 200, "alpha": 0.01, "model": Noisy(), "stochastic": "rows"},
}


def certified(folder: Path, name: str, **others: Any) -> Path:
    """The run of this name, or one with other settings."""
    settings = {**RUNS[name], **others}
    smoothing = settings.pop("smoothing")
    model, arithmetic = settings.pop("model", Thirds()), settings.pop("arithmetic", "auto")
    data, stochastic = settings.pop("data", pictures().select(2, 6)), settings.pop("stochastic", None)
    read = {key: settings.pop(key) for key in ("input_range", "standardise") if key in settings}
    smoothed = vb.SmoothedClassifier(
        model, smoothing, num_classes=3, rows=50, arithmetic=arithmetic, stochastic=stochastic, **read
    )
    if not smoothed.smoothing.law.exact:
        settings.setdefault("seed", 7)
    smoothed.certify(data, settings.pop("y", None), out=folder, progress=False, **settings)
    return folder


def announced(folder: Path) -> Path:
    """A run that was announced, with its nonce."""
    certified(folder, "fixed", seed=None, announce=True, nonce_from="a beacon/round 1")
    return certified(folder, "fixed", seed=None, nonce=PUBLISHED)


def trained(spread: int = 1) -> Ensemble:
    """An ensemble of six base classifiers on 60 samples of three classes."""
    from sklearn.tree import DecisionTreeClassifier

    draw = np.random.default_rng(3)
    y = draw.integers(0, 3, 60)
    x = (y[:, None] + draw.normal(size=(60, 2)) / 4).astype(np.float32)
    learner = SklearnTrainer(DecisionTreeClassifier(max_depth=3, random_state=0), 3)
    return Ensemble.fit(x, y, Partition(6 // spread, spread=spread), learner, source={"limit": 60})


def poisoned(folder: Path, spread: int = 1, aggregate: str = "plurality") -> Path:
    """A poisoning run on five inputs."""
    x = np.array([[0, 0], [1, 1], [2, 2], [0.6, 0.4], [1.4, 1.6]], dtype=np.float32)
    y = np.array([0, 1, 2, 0, 2])
    trained(spread).certify(x, y, aggregate, out=folder, source=InputSource.of_arrays(x, y))
    return folder


def honest(home: Path) -> dict[str, Path]:
    """Every honest run, by its name."""
    made = {name: certified(home / name, name) for name in RUNS}
    made |= {"parts": poisoned(home / "parts"), "runoff": poisoned(home / "runoff", aggregate="runoff")}
    return made | {"spread": poisoned(home / "spread", spread=2), "announced": announced(home / "announced")}


def reseal(folder: Path, derive: bool = True) -> None:
    """Make anew whatever needs neither secret nor model: words and method (`derive`), line checks, claims and seal.

    What the library refuses to derive from the forged files stays as it was.
    """
    with suppress(VaubanError, ValueError, KeyError, TypeError, AttributeError, OverflowError, AssertionError):
        raw = read_json(folder / MANIFEST)
        poisoning = raw["kind"] == "poisoning"
        if derive:
            (_derive_poisoning if poisoning else _derive)(raw)
            write_json(folder / MANIFEST, raw)
        for name in LINES:
            if (folder / name).is_file():
                recheck(folder / name, bound(folder, raw))
        record = run_folder.read_record(folder) if poisoning else read_record(folder)[0]
        picture = (folder / PICTURE).read_bytes() if (folder / PICTURE).is_file() else None
        write_claims(folder, record, None, picture)


def bound(folder: Path, raw: Json) -> str:
    """What lines are bound to; the nonce of an announced run is made to fit its manifest."""
    identity = manifests.identity(raw)
    if not (folder / NONCE).exists():
        return identity
    change(folder / NONCE, put("announced", identity))
    return manifests.parse(raw).binding(read_json(folder / NONCE)["nonce"])


def _derive(raw: Json) -> None:
    """Everything in the manifest that follows from its other fields."""
    method = manifests.parse(raw).method
    made = manifests.parse(raw)
    raw["threat"] = manifests.threat_entries(spoken(method.law.threat, made.inputs, made.data))
    raw["method"] = {"name": method.name, **method.describe()}
    if isinstance(method.law, Law):
        raw["inputs"]["deviation_per_view"] = method.law.deviation(raw["data"]["shape"], raw["inputs"]["levels"])
    raw["claim"] = wording(manifests.parse(raw))


def _derive_poisoning(raw: Json) -> None:
    raw["threat"] = manifests.threat_entries(poisoning_manifest.THREATS[raw["against"]])
    raw["claim"] = poisoning_manifest.parse(raw).wording


def recheck(path: Path, run: str) -> None:
    """Write every line of a file anew, with a check that fits the run of this identity."""
    lines = []
    for line in path.read_text().splitlines():
        body = json.loads(line)
        body.pop("check", None)
        lines.append(checked_line(body, run))
    path.write_text("".join(f"{line}\n" for line in lines))


def manifest(edit: Callable[[Json], Any], *, derive: bool = True) -> Edit:
    """Change the manifest, then reseal."""

    def forge(folder: Path) -> None:
        change(folder / MANIFEST, edit)
        reseal(folder, derive)

    return forge


def naive(edit: Callable[[Json], Any], name: str = MANIFEST) -> Edit:
    """Change a JSON file and nothing else."""
    return lambda folder: change(folder / name, edit)


def change(path: Path, edit: Callable[[Json], Any]) -> None:
    """Change a JSON file."""
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value, indent=1) + "\n")


def put(place: str, value: Any) -> Callable[[Json], Any]:
    """Sets one field of a manifest, named by its path; a function makes the new value of the old one."""

    def edit(raw: Json) -> None:
        *sections, last = place.split(".")
        for one in sections:
            raw = raw[one]
        raw[last] = value(raw[last]) if callable(value) else value

    return edit


def lines(edit: Callable[[list[Json]], Any], name: str = TALLIES, *, sealed: bool = True) -> Edit:
    """Change the parsed lines of a file, in place or by returning others; then reseal, or leave the checks as they are."""

    def forge(folder: Path) -> None:
        bodies = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        changed = edit(bodies)
        texts = [json.dumps(body, separators=(",", ":")) for body in (bodies if changed is None else changed)]
        (folder / name).write_text("".join(f"{text}\n" for text in texts))
        if sealed:
            reseal(folder)

    return forge


def text(name: str, edit: Callable[[str], str], *, sealed: bool = False) -> Edit:
    """Change the text of a file; then, if asked, reseal."""

    def forge(folder: Path) -> None:
        before = (folder / name).read_text()
        after = edit(before)
        assert after != before
        (folder / name).write_text(after)
        if sealed:
            reseal(folder)

    return forge


def arrays(edit: Callable[[dict[str, Any]], Any], *, sealed: bool = True) -> Edit:
    """Change the arrays of a poisoning run, then reseal."""

    def forge(folder: Path) -> None:
        with np.load(folder / "ballots.npz") as kept:
            found: dict[str, Any] = dict(kept)
        edit(found)
        np.savez(folder / "ballots.npz", **found)
        if sealed:
            reseal(folder)

    return forge
