"""The report page as a file: what it holds, what it refuses, and that its proofs catch what was altered."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from amounts import some_slow
from javascript import needs_node, run
from page_runs import DIGITS, attacked, certified, classifier, poisoned
from typer.testing import CliRunner

from vauban.cli import app
from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import sha256
from vauban.page.contents import contents
from vauban.page.pictures import data_urls, png
from vauban.page.report import write_report
from vauban.report.numbers import short_radius
from vauban.runs.run import Run
from vauban.smoothed import SmoothedClassifier

VERIFIED = "const { rows, hashes, unsupported } = await V.verifyRun(given); return { rows, hashes, unsupported };"


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("runs") / "gaussian", "gaussian:sigma=0.5", 1000)


def verified(payload: dict[str, Any]) -> tuple[list[str], list[str], str | None]:
    """The states of all claims, the hashes that do not agree, and why claims are not recomputed."""
    found = run(VERIFIED, payload)
    states = [row["state"] for row in found["rows"]]
    return states, [one["what"] for one in found["hashes"] if not one["ok"]], found["unsupported"]


def held(page: Path) -> dict[str, Any]:
    """The contents inside a page."""
    found = re.search(r'<script type="application/json" id="contents">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@needs_node
@pytest.mark.parametrize(
    "make",
    [
        lambda folder: certified(folder, "gaussian:sigma=0.5", 2000),
        lambda folder: certified(folder, "laplace:sigma=0.5", 2000, label="votes", n0=50),
        lambda folder: certified(folder, "ablation:retained=100", 2000, k=2),
        lambda folder: certified(folder, "uniform:sigma=0.5", 2000, stop="anytime", n=None, seconds=1.5),
        lambda folder: certified(folder, "block:size=12,stride=4", 2000),
        lambda folder: certified(folder, "splitting:sigma=0.05", 2000, label="votes"),
        lambda folder: poisoned(folder),
        lambda folder: poisoned(folder, 4),
        lambda folder: poisoned(folder, 1, "runoff"),
        lambda folder: poisoned(folder, 4, "runoff"),
    ],
    ids=[
        "gaussian",
        "laplace",
        "ablation",
        "anytime",
        "block",
        "splitting",
        "poisoned",
        "spread",
        "runoff",
        "spread runoff",
    ],
)
def test_every_claim_of_a_run_is_recomputed(make: Callable[[Path], Path], tmp_path: Path) -> None:
    states, hashes, unsupported = verified(contents(Run.open(make(tmp_path / "run"))))
    assert set(states) == {"proven"}
    assert hashes == []
    assert unsupported is None


RESULTS = Path(__file__).parents[2] / "results"
OLD = ("sampled/gaussian", "sampled/fractional", "exact/band", "exact/sparse", "poisoning/clusters-1-7")


@needs_node
@pytest.mark.parametrize("name", some_slow(OLD, quick=[0, 3, 4]))
def test_every_claim_of_a_run_of_schema_1_is_recomputed(name: str) -> None:
    payload = contents(Run.open(RESULTS / name))
    assert json.loads(payload["manifest"])["schema"] == 1
    states, hashes, unsupported = verified(payload)
    assert set(states) == {"proven"}
    assert hashes == []
    assert unsupported is None


@needs_node
def test_a_larger_claim_of_a_run_of_schema_1_is_found() -> None:
    payload = contents(Run.open(RESULTS / "sampled/fractional"))
    rows = payload["claims"].splitlines()
    at = next(i for i, row in enumerate(rows[1:], start=1) if row.split(",")[2])
    index, label, radius, abstained = rows[at].split(",")
    rows[at] = ",".join([index, label, f"{float(radius) + 1e-6:.9f}", abstained])
    states, hashes, _ = verified({**payload, "claims": "\n".join([*rows, ""])})
    assert states[at - 1] == "wrong"
    assert states.count("wrong") == 1
    assert hashes == ["the seal names these claims"]


@needs_node
def test_claims_of_a_sigma_for_each_feature_are_recomputed(tmp_path: Path) -> None:
    sigmas = "/".join(["0.5", "0.6"] * 392)
    smoothed = classifier(f"gaussian:sigma={sigmas}")
    smoothed.arithmetic = "float"
    smoothed.certify(DIGITS.select(2000), n=200, alpha=0.01, seed=1, progress=False, out=tmp_path / "run")
    assert set(verified(contents(Run.open(tmp_path / "run")))[0]) == {"proven"}


@needs_node
def test_the_last_extension_is_what_is_shown(tmp_path: Path) -> None:
    folder = certified(tmp_path / "run", "gaussian:sigma=0.5", 2000)
    certified(folder, "gaussian:sigma=0.5", 2000, extend=400)
    payload = contents(Run.open(folder))
    assert payload["claimsFile"] == "claims-400.csv"
    assert verified(payload) == (["proven"] * 5, [], None)


@needs_node
def test_an_unfinished_run_is_shown_without_its_seal(tmp_path: Path) -> None:
    folder = certified(tmp_path / "run", "gaussian:sigma=0.5", 2000)
    (folder / "seal.json").unlink()
    payload = contents(Run.open(folder))
    assert payload["seal"] is None
    assert "not finished" in payload["notes"][-1]
    assert verified(payload) == (["proven"] * 5, [], None)


@needs_node
@pytest.mark.parametrize(
    ("smoothing", "state"), [("block:size=12,stride=4", "unknown"), ("splitting:sigma=0.05", "proven")]
)
def test_ballots_that_are_left_out_are_missed_only_where_order_matters(
    smoothing: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vauban.page.contents._BALLOT_BYTES", 100)
    payload = contents(Run.open(certified(tmp_path / "run", smoothing, 2000)))
    assert "ballots" not in payload
    assert verified(payload) == ([state] * 5, [], None)


@needs_node
def test_a_winner_that_did_not_win_is_found(tmp_path: Path) -> None:
    for spread in (1, 4):
        payload = contents(Run.open(poisoned(tmp_path / f"run-{spread}", spread, "runoff")))
        winner = Run.open(tmp_path / f"run-{spread}").votes.winner.copy()
        winner[0] = (winner[0] + 1) % 10
        packed = base64.b64encode(zlib.compress(winner.astype(np.uint8).tobytes())).decode()
        payload["arrays"]["winner"] |= {"data": packed, "width": 1}
        first = payload["claims"].splitlines()[1]
        number, _, *rest = first.split(",")
        payload["claims"] = payload["claims"].replace(first, ",".join([number, str(winner[0]), *rest]))
        found = run(VERIFIED, payload)
        assert found["rows"][0]["state"] == "wrong"
        assert "did not win" in found["rows"][0]["why"]
        assert {row["state"] for row in found["rows"][1:]} == {"proven"}


@needs_node
def test_a_stopped_run_is_shown_and_said_not_to_be_recomputed(tmp_path: Path) -> None:
    folder = certified(tmp_path / "run", "gaussian:sigma=0.5", 2000, stop="grid:step=0.25")
    states, hashes, unsupported = verified(contents(Run.open(folder)))
    assert set(states) == {"unknown"}
    assert hashes == []
    assert "vauban verify" in str(unsupported)


def divided(payload: dict[str, Any]) -> int:
    """The position of an input that is certified for its label by votes that are not unanimous."""
    labels = json.loads(payload["manifest"])["data"]["label"]
    radii = [row.split(",")[2] for row in payload["claims"].splitlines()[1:]]
    counts = [json.loads(line)["counts"] for line in payload["lines"]]
    return next(i for i, votes in enumerate(counts) if radii[i] and len(votes) > 1 and str(labels[i]) in votes)


@needs_node
@pytest.mark.parametrize("with_check", [False, True])
def test_an_altered_count_is_found(with_check: bool, tmp_path: Path) -> None:
    payload = contents(Run.open(certified(tmp_path / "run", "gaussian:sigma=1.0", 2000)))
    at = divided(payload)
    line = json.loads(payload["lines"][at])
    check, label = line.pop("check"), str(json.loads(payload["manifest"])["data"]["label"][at])
    rival = next(name for name in line["counts"] if name != label)
    line["counts"] = {name: n + (name == label) - (name == rival) for name, n in line["counts"].items()}
    text = json.dumps(line, separators=(",", ":"))
    if with_check:  # as somebody who knows the format would write it
        check = sha256(f"{payload['binding']}\n{text}".encode())[:16]
    payload["lines"][at] = f'{text[:-1]},"check":"{check}"}}'
    states, hashes, _ = verified(payload)
    assert [i for i, state in enumerate(states) if state == "wrong"] == [at]
    assert hashes == []


@needs_node
def test_a_vote_moved_between_rivals_is_found_by_its_check(tmp_path: Path) -> None:
    payload = contents(Run.open(certified(tmp_path / "run", "gaussian:sigma=1.0", 2000)))
    at = divided(payload)
    label, line = json.loads(payload["manifest"])["data"]["label"][at], payload["lines"][at]
    rival = next(name for name in json.loads(line)["counts"] if int(name) != label)
    other = next(str(c) for c in range(int(rival) + 1, 12) if c != label and str(c) not in json.loads(line)["counts"])
    payload["lines"][at] = line.replace(f'"{rival}":', f'"{other}":')
    found = run(VERIFIED, payload)
    assert found["rows"][at]["why"] == "its line of votes was altered"


@needs_node
def test_a_larger_claim_another_label_and_another_alpha_are_found(gaussian: Path) -> None:
    payload = contents(Run.open(gaussian))
    rows = payload["claims"].splitlines()
    at = next(i for i, row in enumerate(rows[1:], start=1) if row.split(",")[2])
    index, label, radius, abstained, truth = rows[at].split(",")
    larger = [*rows]
    larger[at] = ",".join([index, label, f"{float(radius) + 1e-6:.9f}", abstained, truth])
    states, hashes, _ = verified({**payload, "claims": "\n".join([*larger, ""])})
    assert states[at - 1] == "wrong"
    assert hashes == ["the seal names these claims"]
    other = [*rows]
    other[at] = ",".join([index, str((int(label) + 1) % 10), radius, abstained, truth])
    assert verified({**payload, "claims": "\n".join([*other, ""])})[0][at - 1] == "wrong"
    manifest = payload["manifest"].replace('"alpha":0.01', '"alpha":0.001')
    states, hashes, _ = verified({**payload, "manifest": manifest})
    assert "wrong" in states
    assert "votes are bound to this manifest" in hashes


@needs_node
def test_an_altered_vote_of_a_base_classifier_is_found(tmp_path: Path) -> None:
    payload = contents(Run.open(poisoned(tmp_path / "run")))
    counts = Run.open(tmp_path / "run").votes.counts.copy()
    rival, label = counts[0].argsort()[-2:]
    counts[0, [rival, label]] += [-3, 3]
    packed = base64.b64encode(zlib.compress(counts.astype(np.uint8).tobytes())).decode()
    payload["arrays"]["counts"] |= {"data": packed, "width": 1}
    states, hashes, _ = verified(payload)
    assert hashes == ["the seal names these votes"]
    assert [i for i, state in enumerate(states) if state == "wrong"] == [0]


def test_the_page_holds_everything_and_its_policy_names_every_script(gaussian: Path, tmp_path: Path) -> None:
    page = Run.open(gaussian).report(tmp_path / "made" / "report.html", title="Digits <b>")
    text = page.read_text()
    assert page.stat().st_size < 5_000_000
    assert "<title>Digits &lt;b&gt;</title>" in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert "unsafe" not in policy[1]
    assert "default-src 'none'" in policy[1]
    assert not re.search(r'(src|href)="(https?:)?//', text)
    one = held(page)["runs"][0]
    assert len(one["pictures"]["inputs"]) == 10
    assert [len(views) for views in one["pictures"]["views"]] == [3] * 10
    assert one["claims"] == (gaussian / "claims.csv").read_text()


@pytest.mark.slow
def test_several_runs_and_attacks_are_one_page(gaussian: Path, tmp_path: Path) -> None:
    other = certified(tmp_path / "other", "gaussian:sigma=0.25", 2000)
    found = attacked(tmp_path / "attack", gaussian)
    page = write_report([Run.open(gaussian), Run.open(other)], tmp_path / "both.html", attacks=[found], views=0)
    one, two = held(page)["runs"]
    assert [key for key, value in one["attack"]["inputs"].items() if value["distance"] is not None]
    assert one["attack"]["threat"] == "l2"
    assert two["attack"] is None
    assert "views" not in one["pictures"]
    with pytest.raises(RunRefused, match="none of these runs"):
        write_report([Run.open(other)], tmp_path / "no.html", attacks=[found])
    with pytest.raises(BadInput, match="no attack"):
        write_report([Run.open(other)], tmp_path / "no.html", attacks=[gaussian])


def test_inputs_that_cannot_be_found_are_left_out_with_a_word(gaussian: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (4, 1, 6, 6), dtype=np.uint8)

    def bright(views: torch.Tensor) -> torch.Tensor:
        return torch.stack([views.flatten(1).sum(dim=1), torch.zeros(len(views))], dim=1)

    SmoothedClassifier(bright, "gaussian:sigma=0.5", num_classes=2, device="cpu").certify(
        images, [0, 0, 1, 0], n=100, out=tmp_path / "run", progress=False, seed=1
    )
    page = Run.open(tmp_path / "run").report(tmp_path / "report.html")
    assert "the run names no data set that can be read again (ndarray)" in held(page)["runs"][0]["pictures"]["note"]
    with pytest.raises(RunRefused):
        Run.open(gaussian).report(tmp_path / "no.html", data="mnist:split=train")


def test_a_run_that_claims_too_much_is_refused(gaussian: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(gaussian, copied)
    claims = (copied / "claims.csv").read_text()
    (copied / "claims.csv").write_text(claims.replace(",false,", ",true,", 1))
    with pytest.raises(Lie):
        Run.open(copied).report(tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_command_writes_a_page_and_answers_mistakes(gaussian: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["report", str(gaussian), "--out", str(tmp_path / "a.html"), "--json"])
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["bytes"] == (tmp_path / "a.html").stat().st_size
    for arguments, words in (
        ([str(gaussian), "--out", str(tmp_path)], "is a folder"),
        ([str(tmp_path), "--out", str(tmp_path / "b.html")], "is not a run"),
        ([str(gaussian), str(gaussian), "--out", str(tmp_path / "b.html")], "is given twice"),
        ([str(gaussian), "--out", str(tmp_path / "none" / "b.html")], "its folder must exist"),
        ([str(gaussian), "--out", str(tmp_path / "b.html"), "--views", "17"], "less than or equal to 16"),
    ):
        told = CliRunner().invoke(app, ["report", *arguments])
        assert told.exit_code == 2
        assert words in told.stderr
    assert not (tmp_path / "none").exists()
    with pytest.raises(BadInput, match="from 0 to 16"):
        Run.open(gaussian).report(tmp_path / "b.html", views=99_999)


def test_a_report_without_views_needs_no_torch(gaussian: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from vauban.runs.run import Run; "
        f"Run.open({str(gaussian)!r}).report({str(tmp_path / 'report.html')!r}, views=0); print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


@needs_node
def test_radii_are_shown_with_the_digits_of_the_command_line() -> None:
    gallery = (files("vauban.page") / "assets" / "gallery.js").read_text()
    radii = [138.46067, 1.23169, 0.0151559, 0.00965332, 0.000012345678]
    shown = run(f"{gallery}; return given.map((radius) => V.gallery.shownRadius(radius, false));", radii)
    assert [float(text) for text in shown] == [float(short_radius(radius)) for radius in radii]


def test_pictures_are_made_smaller_until_they_fit() -> None:
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 200, 150), dtype=np.uint8)
    urls = data_urls(images, None, 200_000)
    assert len(urls) == 20
    assert sum(map(len, urls)) <= 200_000
    assert data_urls(images, None, 1_000) == []


def test_a_png_is_read_back() -> None:
    image = pytest.importorskip("PIL.Image")
    for channels in (1, 3):
        pixels = np.random.default_rng(2).integers(0, 256, (channels, 5, 7), dtype=np.uint8)
        read = np.asarray(image.open(io.BytesIO(png(pixels))))
        assert np.array_equal(read.reshape(5, 7, channels), pixels.transpose(1, 2, 0))
