"""Runs that stop input by input: begun, interrupted, resumed, verified; and what they refuse to claim."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.runs import manifest as manifests
from vauban.runs.manifest import FILE, wording
from vauban.runs.run import Run
from vauban.runs.store import read_record, write_claims
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier
from vauban.votes import SampledVotes, Tally

Model = Callable[[torch.Tensor], torch.Tensor]
INPUTS = torch.randint(0, 256, (8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
INDEX = [0, 10, 20, 30, 40, 50, 60, 70]
TRUTH = [1, 1, 1, 1, 2, 1, 1, 0]
TARGET = {"n": 2_000, "alpha": 0.01, "stop": "target:radius=0.15"}
GRID = {"n": 2_000, "alpha": 0.01, "stop": "grid:step=0.05"}
ANYTIME = {"alpha": 0.01, "stop": "anytime"}
TALLIES = SampledVotes.file


def run(
    folder: Path,
    model: Model,
    settings: dict[str, Any] = TARGET,
    *,
    seed: int | None = 7,
    rows: int | None = None,
    block: int | None = None,
    order: list[int] | None = None,
    truth: list[int] | None = TRUTH,
    seconds: float | None = None,
    spec: str = "gaussian:sigma=0.25",
    **more: Any,
) -> bytes:
    base = BaseClassifier(model, "half-spaces", "m" * 64)
    smoothed = SmoothedClassifier(base, spec, num_classes=3, rows=rows, block=block, **more)
    smoothed.certify(INPUTS, truth, index=INDEX, out=folder, seed=seed, order=order, seconds=seconds, **settings)
    return lines(folder)


def votes_of(folder: Path) -> SampledVotes:
    votes = read_record(folder)[0].votes
    assert isinstance(votes, SampledVotes)
    return votes


def lines(folder: Path) -> bytes:
    return b"\n".join(sorted((folder / TALLIES).read_bytes().splitlines()))


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


def failing_after(model: Model, calls: int, error: type[BaseException] = Interrupted) -> Model:
    left = [calls]

    def fails(views: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise error
        return model(views)

    return fails


@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize(
    "settings", [TARGET, GRID, {"n": 2_000, "alpha": 0.01, "stop": "target:radius=0.15,test=eprocess"}]
)
@pytest.mark.parametrize(("rows", "block"), [(60, 20), pytest.param(20, None, marks=pytest.mark.slow)])
def test_interrupted_anywhere_and_resumed_gives_the_same_tallies(
    tmp_path: Path, half_spaces: Model, settings: dict[str, Any], rows: int | None, block: int | None
) -> None:
    called = [0]

    def spy(views: torch.Tensor) -> torch.Tensor:
        called[0] += 1
        return half_spaces(views)

    whole = run(tmp_path / "whole", spy, settings, rows=rows, block=block)
    verify_run(tmp_path / "whole")
    for calls in {int(part * called[0]) for part in (0.2, 0.4, 0.6, 0.8, 0.99)}:
        folder = tmp_path / str(calls)
        with pytest.raises(Interrupted):
            run(folder, failing_after(half_spaces, calls), settings, rows=rows, block=block)
        if (folder / TALLIES).exists():
            with pytest.raises(Incomplete):
                verify_run(folder)
        begun = (folder / FILE).exists()  # then rows and block are the run's own
        assert run(folder, half_spaces, settings, rows=None if begun else rows, block=None if begun else block) == whole
        verify_run(folder)


def test_order_and_company_change_no_tally(tmp_path: Path, half_spaces: Model) -> None:
    whole = run(tmp_path / "whole", half_spaces, rows=60, block=20)
    assert run(tmp_path / "order", half_spaces, rows=60, block=20, order=[7, 6, 5, 4, 3, 2, 1, 0]) == whole
    assert run(tmp_path / "ahead", half_spaces, rows=60, block=20, in_flight=4) == whole
    other = run(tmp_path / "other", half_spaces, rows=20)
    votes, others = (_unchecked(text) for text in (whole, other))
    assert votes == others  # another shape is another manifest, but the votes of this model are the same


def _unchecked(text: bytes) -> list[dict]:
    return [{k: v for k, v in json.loads(line).items() if k != "check"} for line in text.splitlines()]


def test_python_and_the_run_folder_say_the_same(tmp_path: Path, half_spaces: Model) -> None:
    for settings in (TARGET, GRID):
        run(tmp_path / settings["stop"][:4], half_spaces, settings)
        certs = Run.open(tmp_path / settings["stop"][:4]).certificates()
        smoothed = SmoothedClassifier(half_spaces, "gaussian:sigma=0.25", num_classes=3)
        direct = smoothed.certify(INPUTS, TRUTH, n=2_000, alpha=0.01, stop=settings["stop"], seed=7)
        assert len(direct) == len(certs) == 8
        assert 0 < direct.abstained.sum() < 8
        assert (direct.counts.sum(axis=1) < 2_000).any()
        assert direct.votes_per_input == pytest.approx(direct.counts.sum(axis=1).mean())
        assert set(direct.radius[~direct.abstained]) <= {round(0.05 * i, 2) for i in range(40)}
    labels = smoothed.certify(INPUTS, n=2_000, alpha=0.01, stop="target:radius=0.15", seed=7)
    assert labels.truth is None
    assert (~labels.abstained).sum() >= (~direct.abstained).sum() - 1


def test_the_manifest_says_what_was_tested_and_the_claims_are_the_rules(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["settings"]["stop"] == "target:radius=0.15"
    method = manifest["method"]
    assert method["test"] == "group"
    assert method["looks"][-1] == 2_000
    assert len(method["boundaries"][0]) == len(method["looks"])
    opened = Run.open(tmp_path / "run")
    certs = opened.certificates()
    for position in range(8):
        wins = [int(counts[TRUTH[position]]) for counts in opened.votes.looks[position]]
        crossed = [w >= least for w, least in zip(wins, method["boundaries"][0], strict=False)]
        assert not any(crossed[:-1])
        assert crossed[-1] == (not certs.abstained[position])
    assert certs.radius[~certs.abstained].tolist() == [0.15] * int((~certs.abstained).sum())


def test_other_settings_are_refused_and_the_same_reproduce(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    opened = Run.open(tmp_path / "run")
    same = opened.certificates(k=1, alpha=0.01)
    assert np.array_equal(same.radius, opened.certificates().radius, equal_nan=True)
    for other in ({"alpha": 0.05}, {"alpha": 1e-6}, {"k": 2}, {"bounds": "simuem"}, {"n": 501}):
        with pytest.raises(BadInput, match="stopped each input by target:radius=0.15.*--stop fixed"):
            opened.certificates(**other)


def test_labels_chosen_by_votes(tmp_path: Path, half_spaces: Model) -> None:
    settings = {"n": 2_000, "alpha": 0.01, "stop": "target:radius=0.1", "label": "votes", "n0": 30}
    whole = run(tmp_path / "run", half_spaces, settings, truth=None, rows=60, block=20)
    verify_run(tmp_path / "run")
    opened = Run.open(tmp_path / "run")
    assert all(chosen is not None for chosen in opened.votes.chosen)
    assert (~opened.certificates().abstained).sum() >= 5
    for calls in (3, 7, 8, 9, 11):
        with pytest.raises(Interrupted):
            run(tmp_path / str(calls), failing_after(half_spaces, calls), settings, truth=None, rows=60, block=20)
        assert run(tmp_path / str(calls), half_spaces, settings, truth=None, rows=60, block=20) == whole


def test_top_k_by_the_labels_count(tmp_path: Path, half_spaces: Model) -> None:
    certs = []
    for k in (1, 2):
        run(tmp_path / str(k), half_spaces, {"k": k, "n": 2_000, "alpha": 0.01, "stop": "target:radius=0.3"})
        verify_run(tmp_path / str(k))
        certs.append(Run.open(tmp_path / str(k)).certificates())
    top1, top2 = certs
    assert (top2.k, top2.bounds) == (2, "binocp")
    assert (~top2.abstained).sum() > (~top1.abstained).sum()
    with pytest.raises(BadInput, match="bounds=simuem with stop=target.*binocp"):
        run(tmp_path / "simuem", half_spaces, {"k": 2, "n": 2_000, "stop": "target:radius=0.15", "bounds": "simuem"})


@pytest.mark.usefixtures("unprobed")
def test_anytime_grows_and_ctrl_c_keeps_what_was_earned(tmp_path: Path, half_spaces: Model) -> None:
    folder = tmp_path / "run"
    run(folder, failing_after(half_spaces, 60, KeyboardInterrupt), ANYTIME)
    first, verdict = Run.open(folder).certificates(), verify_run(folder)
    assert verdict.votes == first.counts.sum()
    sealed = (folder / "seal.json").read_bytes()
    run(folder, failing_after(half_spaces, 200, KeyboardInterrupt), ANYTIME)
    second = Run.open(folder).certificates()
    assert (folder / "seal.json").read_bytes() != sealed
    assert verify_run(folder).votes > verdict.votes
    assert np.nansum(second.radius) > np.nansum(first.radius)
    run(folder, half_spaces, ANYTIME, seconds=0.3)
    verify_run(folder)
    whole = _unchecked(lines(folder))
    run(tmp_path / "undisturbed", failing_after(half_spaces, 300, KeyboardInterrupt), ANYTIME)
    undisturbed = _unchecked(lines(tmp_path / "undisturbed"))
    shared = {(one["input"], one["votes"]) for one in whole} & {(one["input"], one["votes"]) for one in undisturbed}
    assert len(shared) > 100
    kept = {(one["input"], one["votes"]): one["counts"] for one in whole}
    assert all(
        kept[one["input"], one["votes"]] == one["counts"]
        for one in undisturbed
        if (one["input"], one["votes"]) in shared
    )


@pytest.mark.usefixtures("unprobed")
def test_anytime_before_every_input_was_looked_at_is_unfinished(tmp_path: Path, half_spaces: Model) -> None:
    with pytest.raises(Incomplete, match=r"first look at \d of its 8 inputs"):
        run(tmp_path / "run", failing_after(half_spaces, 7, KeyboardInterrupt), ANYTIME, rows=5)
    run(tmp_path / "run", half_spaces, ANYTIME, seconds=0.3)
    verify_run(tmp_path / "run")


def test_anytime_in_python_needs_a_time_and_stops(half_spaces: Model) -> None:
    smoothed = SmoothedClassifier(half_spaces, "gaussian:sigma=0.25", num_classes=3)
    with pytest.raises(BadInput, match="how many seconds"):
        smoothed.certify(INPUTS, TRUTH, stop="anytime")
    with pytest.raises(BadInput, match="n=100 with anytime"):
        smoothed.certify(INPUTS, TRUTH, stop="anytime", seconds=1, n=100)
    with pytest.raises(BadInput, match="seconds=1 with stop=fixed"):
        smoothed.certify(INPUTS, TRUTH, seconds=1)
    for seconds in (0.2, 1, 5, 30, 150):  # more only where the machine has other things to do
        certs = smoothed.certify(INPUTS, TRUTH, stop="anytime", seconds=seconds, seed=1)
        if (~certs.abstained).sum() > 3:
            break
    assert certs.counts.sum() > 500
    assert (~certs.abstained).sum() > 3


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n": 100, "stop": "target:radius=2"}, r"out of reach of n=100 votes.*n=[\d,]+ could certify it"),
        ({"n": 100, "stop": "grid:step=0.00001"}, "at most 500 are supported"),
        ({"stop": "target:radius=-1"}, "radius"),
        ({"stop": "sometimes"}, "sometimes"),
        ({"n": 100_000, "stop": "anytime"}, "n=100000 with anytime"),
        ({"stop": "target:radius=0.2", "alpha": 0.6}, "alpha=0.6"),
    ],
)
def test_bad_settings_leave_nothing_behind(
    tmp_path: Path, half_spaces: Model, settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        run(tmp_path / "run", half_spaces, settings)
    assert not (tmp_path / "run").exists()


def test_the_n_that_could_is_enough(tmp_path: Path, half_spaces: Model) -> None:
    for test in ("group", "eprocess"):
        stop = f"target:radius=0.5,test={test}"
        with pytest.raises(BadInput) as refused:
            run(tmp_path / test, half_spaces, {"n": 50, "alpha": 0.001, "stop": stop})
        enough = int(str(refused.value).split("n=")[2].split(" ")[0].replace(",", ""))
        run(tmp_path / test, half_spaces, {"n": enough, "alpha": 0.001, "stop": stop})
        with pytest.raises(BadInput, match="out of reach"):
            run(tmp_path / "less", half_spaces, {"n": int(0.9 * enough), "alpha": 0.001, "stop": stop})


def test_exact_smoothings_refuse_to_stop(tmp_path: Path, half_spaces: Model) -> None:
    with pytest.raises(BadInput, match="stop=target:radius=0.15 with splitting.*exact"):
        run(tmp_path / "run", half_spaces, TARGET, spec="splitting:sigma=0.25")


def test_settings_of_another_way_to_stop_are_another_run(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    for settings in ({"n": 2_000, "alpha": 0.01}, GRID, {"n": 2_000, "alpha": 0.01, "stop": "target:radius=0.2"}):
        with pytest.raises(RunRefused, match="settings"):
            run(tmp_path / "run", half_spaces, settings)


@pytest.mark.usefixtures("unprobed")
def test_a_finished_run_casts_no_more_votes(tmp_path: Path, half_spaces: Model) -> None:
    whole = run(tmp_path / "run", half_spaces)
    assert run(tmp_path / "run", failing_after(half_spaces, 0)) == whole


def test_inputs_may_share_a_shape_at_a_fixed_n_too(tmp_path: Path, half_spaces: Model) -> None:
    settings = {"n": 330, "alpha": 0.01}
    alone = run(tmp_path / "alone", half_spaces, settings)
    shared = run(tmp_path / "shared", half_spaces, settings, rows=60, block=20)
    assert _unchecked(alone) == _unchecked(shared)
    assert "block" not in json.loads((tmp_path / "alone" / "manifest.json").read_text())["compute"]
    verify_run(tmp_path / "shared")


@pytest.fixture
def honest(tmp_path: Path, half_spaces: Model) -> Path:
    run(tmp_path / "honest", half_spaces)
    return tmp_path / "honest"


def rewrite(folder: Path, kept: list[Tally]) -> None:
    run_id, table = manifests.read(folder).identity, SampledVotes(INDEX, 3, lambda number: None)
    (folder / TALLIES).write_text("".join(table.line(tally, run_id) + "\n" for tally in kept))


def reseal(folder: Path) -> None:
    """As a liar would who knows how everything is computed."""
    write_claims(folder, read_record(folder)[0])


def test_a_claim_the_votes_do_not_support_is_a_lie(honest: Path) -> None:
    text = (honest / "claims.csv").read_text()
    abstained = next(line for line in text.splitlines() if ",true," in line)
    index, label, _, _, truth = abstained.split(",")
    (honest / "claims.csv").write_text(text.replace(abstained, f"{index},{label},0.150000000,false,{truth}"))
    with pytest.raises(Lie, match="the votes say"):
        verify_run(honest)


def test_votes_cast_beyond_a_decision_change_no_claim(honest: Path) -> None:
    votes, looks = votes_of(honest), manifests.read(honest).described["looks"]
    certs, kept = Run.open(honest).certificates(), list(votes.tallies())
    for position in (int(np.flatnonzero(~certs.abstained)[0]), int(np.flatnonzero(certs.abstained)[0])):
        last = votes.looks[position][-1]
        nxt = looks[looks.index(int(last.sum())) + 1]
        flattering = last.copy()
        flattering[TRUTH[position]] += nxt - last.sum()
        rewrite(honest, [*kept, Tally(INDEX[position], "count", nxt, flattering)])
        again = Run.open(honest).certificates()
        assert np.array_equal(again.radius, certs.radius, equal_nan=True)
        with pytest.raises(Lie, match=r"tallies\.jsonl changed"):
            verify_run(honest)
        reseal(honest)
        verify_run(honest)  # more votes than needed prove nothing more, and harm nothing


def test_looks_left_out_or_out_of_order_are_lies(honest: Path) -> None:
    kept = list(votes_of(honest).tallies())
    first = [t for t in kept if t.input == INDEX[0]]
    rest = [t for t in kept if t.input != INDEX[0]]
    assert len(first) > 2
    for some in ([first[0], *first[2:]], first[1:]):
        rewrite(honest, [*some, *rest])
        with pytest.raises(Lie, match="an earlier look is missing"):
            verify_run(honest)
    odd = Tally(INDEX[0], "count", first[-1].votes + 1, first[-1].counts + np.array([1, 0, 0]))
    rewrite(honest, [*kept, odd])
    with pytest.raises(Lie, match="no look of this run"):
        verify_run(honest)
    rewrite(honest, rest)
    with pytest.raises(Lie, match="sealed, but only"):
        verify_run(honest)


def test_a_run_given_up_early_claims_less_and_holds(honest: Path) -> None:
    votes, kept = votes_of(honest), list(votes_of(honest).tallies())
    winner = int(np.flatnonzero(~Run.open(honest).certificates().abstained)[0])
    last = INDEX[winner], int(votes.looks[winner][-1].sum())
    rewrite(honest, [t for t in kept if (t.input, t.votes) != last])
    reseal(honest)
    verify_run(honest)
    assert Run.open(honest).certificates().abstained[winner]
    (honest / "seal.json").unlink()
    with pytest.raises(Incomplete):
        verify_run(honest)


@pytest.mark.parametrize("what", ["boundaries", "looks", "radii", "alpha", "n", "stop", "test", "bounds", "spending"])
def test_a_rule_bent_in_the_manifest_is_a_lie(honest: Path, what: str) -> None:
    """Even by someone who binds the votes and the seal to the bent manifest."""
    raw, kept = json.loads((honest / "manifest.json").read_text()), list(votes_of(honest).tallies())
    settings, method = raw["settings"], raw["method"]
    bent = {
        "boundaries": [[max(0, c - 1) for c in method["boundaries"][0]]],
        "looks": [look - 1 for look in method["looks"]],
        "radii": [0.2],
        "alpha": 0.05,
        "n": 3_000,
        "stop": "target:radius=0.2",
        "test": "eprocess",
        "bounds": "simuem",
        "spending": "early=1,power=1",
    }
    (settings if what in settings else method)[what] = bent[what]
    (honest / "manifest.json").write_text(json.dumps(raw))
    raw["claim"] = wording(manifests.read(honest))
    (honest / "manifest.json").write_text(json.dumps(raw))
    rewrite(honest, kept)
    try:
        reseal(honest)
    except Lie:
        return
    with pytest.raises(Lie):
        verify_run(honest)
