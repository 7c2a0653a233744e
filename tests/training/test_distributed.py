"""Two processes, or a batch in two parts, train what one process does on whole batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from squares import apart, convolution, pictures

from vauban.errors import BadInput
from vauban.models.files import read_weights
from vauban.smoothing import Gaussian
from vauban.training import Recipe, Validation, train
from vauban.training.distributed import Processes

RECIPE = Recipe(epochs=6, batch=20, lr=0.05, optimizer="sgd", augment="shift", loss="consistency", ema=0.5)
CLOSE = 1e-5  # of weights around 0.1: gradients are added in another order

CHILD = """
import json, os, sys, time
from dataclasses import replace
from pathlib import Path
import torch
from torch import distributed
from squares import convolution, pictures
from test_distributed import RECIPE
from vauban.smoothing import Gaussian
from vauban.training import Validation, train
from vauban.training.distributed import PAUSE

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
data, network = pictures(), convolution(norm=False)
for name, accumulate in (("whole", 1), ("parts", 2)):
    recipe = replace(RECIPE, accumulate=accumulate)
    held_out = Validation(data, votes=3, times=2)
    trained = train(network, data, Gaussian(0.25), recipe, out=folder / f"{name}.safetensors", validation=held_out)
    print(json.dumps([entry.to_json() for entry in trained.history]))
ended = train(network, data, Gaussian(0.25), RECIPE, callbacks=lambda progress: rank == 0)
print(json.dumps([len(ended.history), ended.finished]))
time.sleep(PAUSE)
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parent), *sys.path]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    network = convolution(norm=False)
    alone = train(network, pictures(), Gaussian(0.25), RECIPE, validation=Validation(pictures(), votes=3, times=2))
    histories = [[json.loads(line) for line in out.splitlines() if line.startswith("[")] for out, _ in outputs]
    assert histories[0] == histories[1]
    for name, history in zip(("whole", "parts"), histories[0], strict=False):
        network.load_state_dict(read_weights(tmp_path / f"{name}.safetensors")[0])
        assert apart(network, alone.network) < CLOSE
        assert apart(network, convolution(norm=False)) > 1e-2
        for one, other in zip(history, alone.history, strict=True):
            assert one["loss"] == pytest.approx(other.loss, abs=CLOSE)
            assert one["step"] == other.step
    assert histories[0][2] == [1, True]  # the first process's callback ends both


def test_parts_of_a_batch_train_what_the_whole_does() -> None:
    network, data = convolution(norm=False), pictures()
    whole = train(network, data, Gaussian(0.25), RECIPE, clip=0.5)
    parts = train(network, data, Gaussian(0.25), RECIPE, clip=0.5, accumulate=4)
    assert apart(whole.network, parts.network) < CLOSE
    assert [e.loss for e in parts.history] == pytest.approx([e.loss for e in whole.history], abs=CLOSE)


def test_a_batch_is_shared_equally() -> None:
    with pytest.raises(BadInput, match="batch=20 on 3 processes with accumulate=2: give a multiple of 6, such as 24"):
        Processes(0, 3).check_batch(20, 2, Gaussian(0.5))


@pytest.mark.slow
def test_torchrun_trains_from_the_command_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "vauban",
        "train",
    ]
    command += [
        "--data",
        "mnist",
        "--every",
        "200",
        "--smoothing",
        "gaussian:sigma=0.25",
        "--epochs",
        "2",
        "--device",
        "cpu",
    ]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "m.safetensors"), "--json"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] > 0
    assert torch.isfinite(next(iter(read_weights(tmp_path / "m.safetensors")[0].values()))).all()
