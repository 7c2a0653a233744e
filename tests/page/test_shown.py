"""What the page says of a run beside its claims is derived from the manifest, so that editing it elsewhere changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from javascript import needs_node, run
from page_runs import certified, poisoned

from vauban.page.contents import contents
from vauban.report.wording import threat_of
from vauban.runs.manifest import threat_entries
from vauban.runs.run import Run

RESULTS = Path(__file__).parents[2] / "results"
SHOWN = """const manifest = V.readManifest(given.manifest);
return {
  title: V.titleOf(manifest), threat: V.threatOf(manifest, V.readClaims(given.claims, manifest)),
  about: V.aboutOf(manifest, V.sha256(given.manifest)), uncertified: V.uncertified(manifest), wrong: V.mayBeWrong(manifest),
};"""
VERIFIED = "return (await V.verifyRun(given)).hashes.filter((hash) => !hash.ok).map((hash) => hash.what);"


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return contents(Run.open(certified(tmp_path_factory.mktemp("runs") / "gaussian", "gaussian:sigma=0.5", 1000)))


def matches(opened: Any) -> dict[str, Any]:
    """What the page says of a run, after title and threat were compared with Python's."""
    shown = run(SHOWN, contents(opened))
    certs = opened.certificates()
    assert shown["title"] == opened.title
    assert shown["threat"] == {**threat_entries(threat_of(certs)), "integer": certs.threat.integer}
    return shown


@needs_node
@pytest.mark.parametrize("name", ["sampled/gaussian", "exact/band", "poisoning/clusters-1-7", "poisoning/dpa-200"])
def test_title_and_threat_follow_from_the_manifest_of_either_schema(name: str) -> None:
    opened = Run.open(RESULTS / name)
    about = dict(matches(opened)["about"])
    assert about["data"].startswith(opened.manifest.data.spec)
    assert about["manifest"] == f"sha256 {opened.manifest.identity}"
    assert "undefined" not in " ".join(about.values())


@needs_node
def test_where_a_run_comes_from_follows_from_the_manifest(tmp_path: Path) -> None:
    run_ = Run.open(certified(tmp_path / "run", "laplace:sigma=0.5", 2000, label="votes", n0=50))
    shown, manifest = matches(run_), run_.manifest
    about = dict(shown["about"])
    assert about["model"] == f"templates, sha256 {'t' * 64}"
    assert about["inputs"] == "inputs 0, 2000, … of 10000"
    assert about["votes"] == "200 for each input, alpha 0.01, bounds binocp, stop fixed, top 1, labels chosen by votes"
    assert manifest.seed is not None
    assert about["seed"] == f"number, commitment {manifest.seed.commitment}"
    assert about["arithmetic"].startswith(f"torch, fp32, {manifest.compute.device}")


@needs_node
def test_an_input_without_a_radius_is_undecided_only_where_votes_choose_labels(
    gaussian: dict[str, Any], tmp_path: Path
) -> None:
    given, chosen = run(SHOWN, gaussian), run(SHOWN, contents(Run.open(poisoned(tmp_path / "run"))))
    assert (given["uncertified"], given["wrong"]) == ("not certified", False)
    assert (chosen["uncertified"], chosen["wrong"]) == ("undecided", True)


@needs_node
def test_runs_are_drawn_together_where_their_radii_have_the_same_units() -> None:
    def one(name: str, smoothing: str, mean: list[float] | None = None) -> dict[str, Any]:
        inputs = {} if mean is None else {"standardised": {"mean": mean, "scale": [1.0]}}
        return {"threat": {"name": name}, "smoothing": smoothing, "inputs": inputs}

    alike = [one("l2", "gaussian:sigma=1"), one("l2", "gaussian:sigma=2"), one("l2", "gaussian:sigma=2")]
    assert len(set(run("return given.map(V.measureOf)", alike))) == 1
    other = [one("l2", "g", [0.0]), one("l2", "g", [1.0]), one("l2", "g"), one("l2-scaled", "g:sigma=1/2")]
    other += [one("l2-scaled", "g:sigma=2/1"), {"threat": {"name": "poisoning"}, "partition": "hash:partitions=3"}]
    assert len(set(run("return given.map(V.measureOf)", other))) == 6


@needs_node
def test_shares_of_errors_are_rounded_up_and_those_of_certified_inputs_down() -> None:
    shares = [5 / 143, 138 / 143, 0, 1, 29 / 100]
    up, down = run("return [given.map(V.percentUp), given.map(V.percent)]", shares)
    assert up == ["3.50 %", "96.51 %", "0.00 %", "100.00 %", "29.00 %"]
    assert down == ["3.49 %", "96.50 %", "0.00 %", "100.00 %", "29.00 %"]


def test_a_page_holds_nothing_twice_that_its_manifest_says(gaussian: dict[str, Any]) -> None:
    assert not {"title", "threat", "about", "rho", "finished", "identity"} & set(gaussian)


@needs_node
@pytest.mark.parametrize(
    ("old", "new"), [("L2 norm", "L3 norm"), ('"ball":"open"', '"ball":"shut"'), ("templates", "x")]
)
def test_an_edit_of_what_the_manifest_says_is_found(old: str, new: str, gaussian: dict[str, Any]) -> None:
    assert old in gaussian["manifest"]
    found = run(VERIFIED, {**gaussian, "manifest": gaussian["manifest"].replace(old, new)})
    assert "votes are bound to this manifest" in found
    assert "the seal names this manifest" in found


@needs_node
def test_inputs_cannot_be_left_out_of_a_sealed_run(gaussian: dict[str, Any]) -> None:
    fewer = "\n".join([*gaussian["claims"].splitlines()[:-1], ""])
    assert "there is one claim for every input" in run(VERIFIED, {**gaussian, "claims": fewer, "finished": False})
