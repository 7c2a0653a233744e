"""The base install has no torch: runs verify and give claims, and everything else says what to install."""

import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[2] / "results/sampled/gaussian"

WITHOUT = """
import json, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
import vauban as vb
from typer.testing import CliRunner
from vauban.cli import app

def said(problem, get):
    try:
        get()
    except problem as error:
        return str(error)

run = vb.Run.open(sys.argv[1])
commands = {
    "verify": ["verify", sys.argv[1]],
    "claim": ["claim", sys.argv[1], "-k", "3"],
    "plan": ["plan", "--radius", "0.5"],
    "certify": ["certify", "--smoothing", "gaussian:sigma=0.5", "--out", "nowhere"],
    "train": ["train", "--data", "mnist", "--smoothing", "gaussian:sigma=0.5", "--out", "m.safetensors"],
}
results = {name: CliRunner().invoke(app, arguments) for name, arguments in commands.items()}
print(json.dumps({
    "votes": run.verify().votes,
    "accuracy": run.certificates().accuracy(0.5),
    "missing": said(ImportError, lambda: vb.SmoothedClassifier),
    "unknown": said(AttributeError, lambda: vb.Nothing),
    "codes": {name: result.exit_code for name, result in results.items()},
    "plan": results["plan"].stdout,
    "errors": {name: result.stderr for name, result in results.items()},
}))
"""


def test_without_torch_runs_verify_and_the_rest_names_the_extra(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(RUN)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    assert found["votes"] == 500_000
    assert found["accuracy"] == 0.932
    assert found["missing"] == (
        "vauban.SmoothedClassifier needs torch, which is not installed: pip install 'vauban[torch]'"
    )
    assert found["unknown"].startswith("module 'vauban' has no attribute 'Nothing'; it has Ablation,")
    assert found["codes"] == {"verify": 0, "claim": 0, "plan": 0, "certify": 2, "train": 2}
    assert "gaussian:sigma=0.1564" in found["plan"]
    assert "cost: not measured; measuring the speed needs" in found["plan"]
    for name in ("certify", "train"):
        assert found["errors"][name].startswith("error: this command needs ")
        assert found["errors"][name].endswith(", which is not installed: pip install 'vauban[torch]'\n")
