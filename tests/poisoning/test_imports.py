"""What works without torch is imported without it, and every public name is importable."""

import subprocess
import sys

import vauban.poisoning

WITHOUT_TORCH = [
    "defense",
    "manifest_file",
    "progress",
    "selection",
    "partitioning.partition",
    "partitioning.samples",
    "training.failures",
    "training.preprocessing",
    "training.scikit_learn",
    "training.trainer",
    "votes.certificates",
    "votes.ensemble_votes",
    "votes.importing",
    "votes.poisoning_manifest",
    "votes.poisoning_run",
    "votes.run_folder",
    "votes.schema1",
    "votes.verification",
    "votes.votes_file",
]


def test_votes_and_partitions_need_no_torch() -> None:
    code = f"import importlib, sys\nfor m in {WITHOUT_TORCH!r}: importlib.import_module('vauban.poisoning.' + m)\n"
    code += "assert not {'torch', 'sklearn', 'joblib', 'ray'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_are_importable() -> None:
    for name in vauban.poisoning.__all__:
        assert getattr(vauban.poisoning, name) is not None
    assert vauban.poisoning.Votes is vauban.poisoning.EnsembleVotes
    assert not hasattr(vauban.poisoning, "Ballots")
