"""Every kind of forgery of a run folder that we know, and what catches it; docs/forgeries.md is this list."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from forged_files import FILES
from forged_folders import CLAIMS, PUBLISHED, RUNS, Forgery, honest
from forged_manifests import MANIFESTS
from forged_runs import RUNS_IN_PLACE
from forged_seeds import SEEDS
from forged_selections import SELECTIONS
from forged_votes import VOTES
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.cli.common import printable
from vauban.errors import VaubanError
from vauban.files import read_packed
from vauban.replay import replay
from vauban.runs.verify import verify_run

FORGERIES: Mapping[str, list[Forgery]] = {**MANIFESTS, **VOTES, **RUNS_IN_PLACE, **SEEDS, **FILES, **SELECTIONS}
ALL = [pytest.param(one, id=f"{one.kind} ({one.run})") for group in FORGERIES.values() for one in group]
SMOOTHED = (*RUNS, "announced")
CAUGHT = ("verify", "verify --announced", "verify --data", "replay", "nothing", "no harm")
HEAD = """# Forgeries

Kinds of forgeries of a run folder, and what catches each: {} kinds. `tests/soundness/test_forgeries.py` forges every one of
them in a small honest run and checks this table, which is written from the same list.

The forger is clever: unless the kind says otherwise, he makes anew every word, check and hash that follows from what he changed.
What he cannot do is to let that model, on those inputs and with that seed, cast other votes.

| caught by | kinds | meaning |
| --- | --- | --- |
| verify | {} | `vauban verify RUN` refuses the folder with a sentence |
| verify --announced | {} | that passes; `vauban verify RUN --announced H --nonce V`, with what was published, refuses it |
| verify --data | {} | verify passes; `vauban verify RUN --data SPEC`, with the whole data set, refuses it |
| replay | {} | verify passes, with `--data` too; `vauban verify RUN --replay --all`, with the model and the data, refuses it |
| nothing | {} | all pass; verify prints that this cannot be known from the folder, in the words of the last column |
| no harm | {} | all pass, and the folder claims nothing that is not proven |

A replay of some inputs finds a forged vote only if its input is drawn, see [seeds-and-replay.md](seeds-and-replay.md). Runs:
*fixed*, *chosen* (labels by votes), *sequential*, *exact*, *float* (inputs off the grid), *rows* (scores that depend on the
row), *random* (a model that is random by design), *counts* (exact, counts kept in place of ballots), *shuffled*, *skipped* (a
file that cannot be read), *standardised* (features scaled by statistics of other data), *announced*; of poisoning *parts*,
*runoff* and *spread* (base classifiers that share samples).

"""
PAGE = Path(__file__).parents[2] / "docs" / "forgeries.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return honest(tmp_path_factory.mktemp("honest"))


def published(folder: Path) -> str:
    """The hash by which the honest run was announced."""
    return str(vb.Run.open(folder).manifest.identity)


def replay_all(folder: Path, forgery: Forgery) -> None:
    replay(folder, forgery.model(), forgery.data(), inputs=None, progress=False)


@pytest.mark.parametrize("forgery", ALL)
def test_a_forgery_is_caught_or_named(forgery: Forgery, runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(runs[forgery.run], folder)
    forgery.forge(folder)
    if forgery.caught == "verify":
        with pytest.raises(VaubanError, match=forgery.says):
            verify_run(folder)
        return
    verify_run(folder)
    if forgery.caught == "verify --announced":
        with pytest.raises(VaubanError, match=forgery.says):
            verify_run(folder, announced=published(runs["announced"]), nonce=PUBLISHED)
        return
    if forgery.caught == "verify --data":
        with pytest.raises(VaubanError, match=forgery.says):
            verify_run(folder, data=forgery.data())
        return
    if forgery.run in SMOOTHED:
        verify_run(folder, data=forgery.data())
    if forgery.caught == "replay":
        with pytest.raises(VaubanError, match=forgery.says):
            replay_all(folder, forgery)
        return
    if forgery.run in SMOOTHED:
        replay_all(folder, forgery)
    if forgery.caught == "nothing":
        printed = CliRunner().invoke(app, ["verify", str(folder)])
        assert printed.exit_code == 0
        assert re.search(forgery.says, printed.stdout), printed.stdout
    else:
        check_harmless(forgery.says, runs[forgery.run], folder)


def check_harmless(why: str, before: Path, after: Path) -> None:
    if why == "the same claims":
        assert read_packed(after / CLAIMS) == (before / CLAIMS).read_bytes()
    elif why == "smaller claims":
        old, new = (np.nan_to_num(vb.Run.open(folder).certificates().radius, nan=-1) for folder in (before, after))
        assert (new <= old).all()
    else:
        assert why == "another exact claim"
        assert vb.Run.open(after).certificates().exact


def test_what_a_manifest_says_cannot_command_a_terminal() -> None:
    assert printable("held\x1b[8m\nReplayed: é") == r"held\x1b[8m\nReplayed: é"


def test_the_page_is_this_list() -> None:
    """`python tests/soundness/test_forgeries.py` writes the page anew."""
    assert PAGE.read_text() == page()


def page() -> str:
    """The text of docs/forgeries.md."""
    kinds = [one for group in FORGERIES.values() for one in group]
    assert len({(one.kind, one.run) for one in kinds}) == len(kinds)
    by = {caught: sum(one.caught == caught for one in kinds) for caught in CAUGHT}
    parts = [HEAD.format(len(kinds), *by.values())]
    for title, group in FORGERIES.items():
        parts.append(f"## {title}\n| what is forged | run | caught by | what is said |\n| --- | --- | --- | --- |\n")
        for one in group:
            said = _plain(one.says) if one.caught in ("nothing", "no harm") else ""
            parts.append(f"| {one.kind} | {one.run} | {one.caught} | {said} |\n")
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def _plain(pattern: str) -> str:
    return pattern.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\").replace(".*", "…")


if __name__ == "__main__":
    PAGE.write_text(page())
