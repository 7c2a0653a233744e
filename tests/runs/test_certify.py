"""Runs: begun, interrupted, resumed, refused; always the same tallies."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import locked
from vauban.runs.run import Run
from vauban.runs.verify import verify_run
from vauban.smoothed import SmoothedClassifier

Model = Callable[[torch.Tensor], torch.Tensor]
INPUTS = torch.randint(0, 256, (6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
INDEX = [0, 10, 20, 30, 40, 50]
TRUTH = [0, 1, 1, 1, 2, 1]
SETTINGS = {"k": 1, "n": 1_300, "alpha": 0.01}
TALLIES = "tallies.jsonl"


def run(
    folder: Path,
    model: Model,
    settings: dict[str, Any] = SETTINGS,
    *,
    seed: int | None = 7,
    order: list[int] | None = None,
    in_flight: int = 1,
    truth: list[int] | None = TRUTH,
    sha256: str = "m" * 64,
    num_classes: int = 3,
) -> bytes:
    base = BaseClassifier(model, "half-spaces", sha256)
    smoothed = SmoothedClassifier(base, "gaussian:sigma=0.25", num_classes=num_classes, in_flight=in_flight)
    smoothed.certify(INPUTS, truth, index=INDEX, out=folder, seed=seed, order=order, **settings)
    return b"\n".join(sorted((folder / TALLIES).read_bytes().splitlines()))


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


def failing_after(model: Model, calls: int) -> Model:
    left = [calls]

    def fails(views: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted
        return model(views)

    return fails


def test_interrupted_anywhere_and_resumed_gives_the_same_tallies(tmp_path: Path, half_spaces: Model) -> None:
    whole = run(tmp_path / "whole", half_spaces)
    for calls in (0, 1, 2, 7, 13, 14, 30, 60):
        folder = tmp_path / str(calls)
        with pytest.raises(Interrupted):
            run(folder, failing_after(half_spaces, calls))
        assert run(folder, half_spaces) == whole
        verify_run(folder)


@pytest.mark.usefixtures("unprobed")
def test_many_interruptions_of_one_run(tmp_path: Path, half_spaces: Model) -> None:
    attempts = 0
    while True:
        try:
            lines = run(
                tmp_path / "run", failing_after(half_spaces, 20), seed=7
            )  # each call compares up to 13 shapes of kept votes first
            break
        except Interrupted:
            attempts += 1
    assert attempts > 4
    assert lines == run(tmp_path / "whole", half_spaces)


def test_order_and_batch_change_no_tally(tmp_path: Path, half_spaces: Model) -> None:
    whole = run(tmp_path / "whole", half_spaces)
    assert run(tmp_path / "backward", half_spaces, order=[5, 4, 3, 2, 1, 0]) == whole
    assert run(tmp_path / "ahead", half_spaces, in_flight=4) == whole


def test_another_seed_gives_other_tallies_and_none_is_fresh(tmp_path: Path, half_spaces: Model) -> None:
    lines = {run(tmp_path / str(i), half_spaces, seed=seed) for i, seed in enumerate([1, 2, None, None])}
    assert len(lines) == 4


def test_a_run_without_a_given_seed_resumes_with_its_own(tmp_path: Path, half_spaces: Model) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path / "run", failing_after(half_spaces, 20), seed=None)
    run(tmp_path / "run", half_spaces, seed=None)
    verify_run(tmp_path / "run")
    assert (tmp_path / "run" / "seed").stat().st_mode & 0o077 == 0
    assert (tmp_path / "run" / "seed").read_text().strip() not in (tmp_path / "run" / "manifest.json").read_text()


@pytest.mark.usefixtures("unprobed")
def test_a_finished_run_casts_no_more_votes(tmp_path: Path, half_spaces: Model) -> None:
    whole = run(tmp_path / "run", half_spaces)
    assert run(tmp_path / "run", failing_after(half_spaces, 0)) == whole


def test_prefixes_are_kept_and_claims_for_other_settings_cost_no_votes(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    opened = Run.open(tmp_path / "run")
    assert sorted(opened.counts) == [100, 200, 500, 1000, 1300]
    radii = {n: opened.certificates(n=n).radius for n in opened.counts}
    decided = ~np.isnan(radii[100])
    assert decided.any()
    assert np.nanmax(radii[1300]) > np.nanmax(radii[100])
    certs = opened.certificates(k=2, alpha=1e-6, bounds="half")
    assert (certs.k, certs.alpha, certs.bounds, certs.index.tolist()) == (2, 1e-6, "half", INDEX)
    with pytest.raises(BadInput, match="n=300 is not a look.*100, 200"):
        opened.certificates(n=300)


def test_labels_chosen_by_votes_are_kept_as_votes(tmp_path: Path, half_spaces: Model) -> None:
    settings = {"n": 500, "alpha": 0.01, "label": "votes", "n0": 50}
    whole = run(tmp_path / "run", half_spaces, settings)
    for calls in (0, 1, 2, 5, 6, 7):
        with pytest.raises(Interrupted):
            run(tmp_path / str(calls), failing_after(half_spaces, calls), settings)
        assert run(tmp_path / str(calls), half_spaces, settings) == whole
    opened = Run.open(tmp_path / "run")
    certs = opened.certificates()
    assert certs.label.tolist() == [int(opened.votes.chosen[i].argmax()) for i in range(6)]
    assert certs.truth is not None
    unlabelled = run(tmp_path / "unlabelled", half_spaces, settings, truth=None)
    assert b"choose" in unlabelled
    assert Run.open(tmp_path / "unlabelled").certificates().truth is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"settings": SETTINGS | {"k": 2}}, "settings.k: the run has 1, now 2"),
        ({"settings": SETTINGS | {"n": 1_400}}, "settings.n"),
        ({"settings": SETTINGS | {"alpha": 0.02}}, "settings.alpha"),
        ({"sha256": "x" * 64}, "model.sha256"),
        ({"seed": 8}, "seed.commitment"),
    ],
)
def test_a_folder_of_another_run_is_refused_and_left_alone(
    tmp_path: Path, half_spaces: Model, change: dict, complaint: str
) -> None:
    run(tmp_path / "run", half_spaces)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(RunRefused, match=complaint):
        run(tmp_path / "run", half_spaces, **change)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_refusal_shows_settings_first_and_where_long_values_differ(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    with pytest.raises(RunRefused) as refused:
        run(tmp_path / "run", half_spaces, settings=SETTINGS | {"k": 2, "alpha": 0.02})
    lines = str(refused.value).splitlines()[1:-1]
    assert lines[0].startswith("  settings.alpha: the run has 0.01, now 0.02")
    words = [line for line in lines if line.startswith("  claim: ")]
    assert words == lines[-1:]
    before, after = words[0].removeprefix("  claim: the run has ").split(", now ")
    assert before != after
    assert before.startswith("…")
    assert "0.01" in before
    assert "0.02" in after


@pytest.mark.parametrize("path", ["there", "there/run", "there/deep/run"])
def test_a_file_where_the_run_folder_should_be_is_refused(tmp_path: Path, half_spaces: Model, path: str) -> None:
    (tmp_path / "there").write_text("a file")
    with pytest.raises(
        BadInput, match=r"there.* cannot be used as a run folder, since .*there is a file: give another"
    ):
        run(tmp_path / path, half_spaces)
    assert (tmp_path / "there").read_text() == "a file"


def test_a_folder_whose_name_is_not_possible_is_refused(tmp_path: Path, half_spaces: Model) -> None:
    with pytest.raises(BadInput, match="cannot be used as a run folder: File name too long"):
        run(tmp_path / ("long" * 100), half_spaces)


def test_a_folder_with_strange_files_is_refused(tmp_path: Path, half_spaces: Model) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunRefused, match="thesis.tex"):
        run(tmp_path, half_spaces)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_writers_at_once_are_refused(tmp_path: Path, half_spaces: Model) -> None:
    with locked(tmp_path / "run"), pytest.raises(RunRefused, match="another process"):
        run(tmp_path / "run", half_spaces)


def test_a_wrong_model_begins_no_run(tmp_path: Path) -> None:
    for model, complaint in [
        (lambda views: torch.zeros(len(views), 4), r"\(100, 4\)"),
        (lambda views: torch.full((len(views), 3), float("nan")), "NaN"),
    ]:
        with pytest.raises(BadInput, match=complaint):
            run(tmp_path / "deep" / "run", model)
        assert not list(tmp_path.iterdir())


def test_a_refused_extension_leaves_nothing_behind(tmp_path: Path, half_spaces: Model) -> None:
    with pytest.raises(BadInput, match="holds no run to extend"):
        run(tmp_path / "run", half_spaces, SETTINGS | {"extend": 2_600})
    assert not list(tmp_path.iterdir())


def test_a_run_that_another_process_begins_meanwhile_is_left_alone(tmp_path: Path, half_spaces: Model) -> None:
    """The folder is empty when this process looks, and holds a run of another one before this one writes to it."""
    begun: list[dict[str, bytes]] = []

    def slow(views: torch.Tensor) -> torch.Tensor:
        if not begun:
            begun.append({})
            run(tmp_path / "run", half_spaces)
            begun[0] |= {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
        return half_spaces(views)

    with pytest.raises(RunRefused, match="begun by another process just now"):
        run(tmp_path / "run", slow, seed=8)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == begun[0]
    run(tmp_path / "run", half_spaces)


def test_of_two_first_writers_one_is_refused(tmp_path: Path, half_spaces: Model) -> None:
    """Another process holds the lock since after this one looked, and has written nothing yet."""
    with ExitStack() as stack:

        def slow(views: torch.Tensor) -> torch.Tensor:
            if not (tmp_path / "run").exists():
                stack.enter_context(locked(tmp_path / "run"))
            return half_spaces(views)

        with pytest.raises(RunRefused, match="being written by another process"):
            run(tmp_path / "run", slow)
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("settings", "truth", "complaint"),
    [
        ({"n": 5, "alpha": 0.01}, TRUTH, "the least is 7"),
        ({"k": 3}, TRUTH, "k=3 of 3 classes"),
        ({"alpha": 2.0}, TRUTH, "alpha=2.0"),
        ({"label": "votes", "k": 2}, TRUTH, "k=1 is needed"),
        ({"label": "votes", "n0": 0}, TRUTH, "n0=0"),
        ({"label": "guess"}, TRUTH, "'given' or 'votes'"),
        ({"label": "given"}, None, "label='votes'"),
        ({}, [0, 1, 2, 3, 0, 0], "label 3 of input 3"),
    ],
)
def test_bad_settings_leave_nothing_behind(
    tmp_path: Path, half_spaces: Model, settings: dict, truth: list[int] | None, complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        run(tmp_path / "run", half_spaces, settings, truth=truth)
    assert not (tmp_path / "run").exists()


def test_the_manifest_says_what_the_claim_depends_on(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert "every change whose L2 norm is less than its radius" in manifest["claim"]
    assert "pictures on that grid" in manifest["claim"]
    assert manifest["threat"]["ball"] == "open"
    assert manifest["inputs"]["arithmetic"] == "grid"
    assert 0 < manifest["inputs"]["deviation_per_view"] < 1e-14
    assert manifest["compute"]["rows"] == 100
    assert manifest["method"]["looks"][-1] == 1_300


def test_a_finished_run_with_damaged_claims_is_refused(tmp_path: Path, half_spaces: Model) -> None:
    run(tmp_path / "run", half_spaces)
    (tmp_path / "run" / "claims.csv").unlink()
    with pytest.raises(Lie, match="remove them"):
        run(tmp_path / "run", half_spaces)
    (tmp_path / "run" / "seal.json").unlink()
    run(tmp_path / "run", half_spaces)
    verify_run(tmp_path / "run")


@pytest.mark.usefixtures("unprobed")
def test_a_seal_does_not_outlive_the_votes_it_closed(tmp_path: Path, half_spaces: Model) -> None:
    whole = run(tmp_path / "run", half_spaces)
    kept = (tmp_path / "run" / TALLIES).read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / TALLIES).write_bytes(b"".join(kept[:-1]))
    with pytest.raises(Interrupted):
        run(tmp_path / "run", failing_after(half_spaces, 0))
    assert not (tmp_path / "run" / "seal.json").exists()
    assert run(tmp_path / "run", half_spaces) == whole
    verify_run(tmp_path / "run")
