"""What vb.train and vauban train answer to arguments that cannot be used."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from squares import convolution, pictures, same
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.errors import BadInput, CannotWrite
from vauban.training import Recipe, Validation, train
from vauban.training.checkpoints import Files
from vauban.training.recipes import named

DATA = pictures()
SMOOTHING = "gaussian:sigma=0.25"
QUICK: dict[str, Any] = {"epochs": 1, "batch": 30}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 3}, "'batch_size' is not a known setting of train .did you mean 'batch'"),
        ({"overwrit": True}, "did you mean 'overwrite'"),
        ({"epochs": "3"}, "epochs='3': a number is needed"),
        ({"epochs": True}, "epochs=True: a number is needed"),
        ({"batch": 16.0}, "batch=16.0: a whole number is needed"),
        ({"batch": 16.5}, "batch=16.5: a whole number is needed"),
        ({"seed": "a"}, "seed='a': a whole number is needed"),
        ({"warmup": "1"}, "warmup='1': a number is needed"),
        ({"nesterov": "no"}, "nesterov='no': True or False is needed"),
        ({"loss": 3}, "loss=3: the text of a loss is needed"),
        ({"stop_after": 0}, "stop_after=0: the number of steps .* 1 or more"),
        ({"workers": -1}, "workers=-1: a whole number of processes is needed, 0 or more"),
        ({"callbacks": 3}, "callbacks=3: a function of the progress is needed, or a list"),
        ({"callbacks": ["print"]}, "a function of the progress is needed"),
        ({"validation": 10}, r"validation=10: a vauban.training.Validation\(held\) is needed"),
        ({"device": "gpu"}, "device='gpu': the name of a device is needed"),
        ({"out": 3}, "out=3: the path of a .safetensors file is needed"),
        ({"init": b"x"}, "init=b'x': the path of a .safetensors file is needed"),
    ],
)
def test_arguments_of_a_wrong_kind_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        vb.train(convolution(), DATA, SMOOTHING, **settings)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (lambda x: x, "a torch.nn.Module is needed, or the text of an architecture"),
        (torch.nn.Linear, r"the class Linear: give a module of it, such as Linear\(…\)"),
        (None, "network is None: a torch.nn.Module is needed"),
    ],
)
def test_a_network_that_is_no_module_is_refused(network: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        vb.train(network, DATA, SMOOTHING, **QUICK)


def test_an_ensemble_is_trained_by_its_module() -> None:
    both: Any = vb.ensemble([convolution(), convolution()])
    with pytest.raises(BadInput, match=r"weights are fixed: to train it, give its torch module, model.module"):
        vb.train(both, DATA, SMOOTHING, **QUICK)
    trained = vb.train(both.module.requires_grad_(True), DATA, SMOOTHING, **QUICK)
    assert not same(trained.network, both.module)


def test_a_recipe_by_name_is_refused_with_how_to_get_it() -> None:
    with pytest.raises(BadInput, match=r"recipe='best': a vb.Recipe is needed.*recipes.named\(name"):
        vb.train(convolution(), DATA, SMOOTHING, "best")  # type: ignore[arg-type]
    found = named("best", smoothing=SMOOTHING, data="mnist")
    with pytest.raises(BadInput, match=r"a vb.Recipe is needed.*\.recipe$"):
        vb.train(convolution(), DATA, SMOOTHING, found)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="'batch_size' is not a known setting"):
        Recipe.from_options(Recipe(), {"batch_size": 3})


def test_a_device_must_be_there_and_auto_always_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "cuda:1", torch.device("cuda")):
        with pytest.raises(BadInput, match="device='cuda.* does not exist here: 'auto' and 'cpu' always do"):
            vb.train(convolution(), DATA, SMOOTHING, device=device, **QUICK)
    by_name = [vb.train(convolution(), DATA, SMOOTHING, device=device, **QUICK).network for device in ("auto", "cpu")]
    assert same(*by_name)


def test_numbers_of_numpy_are_settings() -> None:
    recipe = Recipe(epochs=np.float64(1), batch=np.int64(30), seed=np.int32(2), nesterov=np.bool_(False))  # type: ignore[arg-type]
    assert train(convolution(), DATA, SMOOTHING, recipe).step == 2


def test_a_callback_that_returns_true_of_numpy_ends_the_training() -> None:
    ended = train(convolution(), DATA, SMOOTHING, epochs=20, batch=30, callbacks=lambda progress: np.bool_(True))
    assert (ended.step, ended.finished) == (10, True)
    whole = train(convolution(), DATA, SMOOTHING, epochs=6, batch=30, callbacks=lambda progress: np.bool_(False))
    assert whole.step == 12


def test_errors_in_python_name_its_arguments() -> None:
    with pytest.raises(BadInput, match=r"a smoothing is missing: .*\(--smoothing; in Python smoothing=\)"):
        vb.train(convolution(), DATA)
    with pytest.raises(BadInput, match="^simclr learns features .* of gaussian:sigma=0.5: leave the smoothing out"):
        vb.train(convolution(), DATA, vb.Gaussian(sigma=0.5), loss="simclr")


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_network_that_cannot_be_copied_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def normed() -> torch.nn.Module:
        network = convolution()
        network[5] = torch.nn.utils.weight_norm(network[5])
        return network

    said = (
        r"Sequential cannot be copied.*RuntimeError.*: replace torch\.nn\.utils\.weight_norm by torch\.nn\.utils\.param"
    )
    with pytest.raises(BadInput, match=said):
        train(normed(), pictures(), "gaussian:sigma=0.25", epochs=1, batch=30)
    network = convolution()
    network[5] = torch.nn.utils.parametrizations.weight_norm(network[5])
    assert train(network, pictures(), "gaussian:sigma=0.25", epochs=1, batch=30).finished

    class Locked(torch.nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot pickle 'lock'")

    with pytest.raises(BadInput, match=r"Locked cannot be copied.*TypeError.*: a module that copy\.deepcopy can copy"):
        train(Locked(64, 3), (torch.rand(6, 64), [0, 1, 2] * 2), "gaussian:sigma=0.25", epochs=1, batch=3)


def test_features_are_not_validated() -> None:
    with pytest.raises(BadInput, match="loss=simclr learns features.*: leave validation out") as refused:
        vb.train(convolution(), DATA, loss="simclr", validation=Validation(DATA))
    assert "classifier=" not in str(refused.value)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no folder /proc here")
def test_a_folder_that_takes_no_files_is_not_said_to_be_in_use(tmp_path: Path) -> None:
    for out in ("/proc/x.safetensors", tmp_path / "file" / "x.safetensors"):
        (tmp_path / "file").touch()
        with pytest.raises(CannotWrite, match=rf"{out} cannot be written: .*; give another --out"):
            train("cnn-small", pictures(), "gaussian:sigma=0.25", epochs=1, out=out)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    files = Files(tmp_path / "m.safetensors")
    files.log.symlink_to("/dev/full")
    with pytest.raises(CannotWrite, match=r"m\.train\.jsonl cannot be written: No space left"):
        files.append_log({"step": 1})


def test_tensorboard_needs_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from vauban.training.tensorboard import TensorBoard

    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file is a file, and TensorBoard's files need a folder"):
        TensorBoard(tmp_path / "file")
    with pytest.raises(CannotWrite, match="inside cannot be written: Not a directory"):
        TensorBoard(tmp_path / "file" / "inside")


# The command line


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    np.savez(tmp_path / "made.npz", images=DATA.images, labels=np.asarray(DATA.labels))
    return ["train", "--data", f"npz:path={tmp_path / 'made.npz'}", "--out", str(tmp_path / "m.safetensors")]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--loss", "simclr", "--validate", "10"], "leave validation out (--validate)"),
        (["--loss", "simclr", "-s", SMOOTHING], "simclr learns features from augmented copies, not from views of"),
        (["--loss", "noise+", "-s", SMOOTHING], "'noise+': a loss is missing after the +"),
        (["--loss", "patch-margin", "-s", SMOOTHING], "use exact band or block"),
        (["--loss", "mse", "-s", SMOOTHING], "mse trains a denoiser, and none is named"),
    ],
)
def test_the_command_says_what_to_leave_out(command: list[str], options: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, [*command, *options])
    assert done.exit_code == 2
    assert sentence in done.stderr


def test_blanks_around_a_plus_are_allowed(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "-s", SMOOTHING, "--loss", "noise + stability", "--epochs", "0.1"])
    assert done.exit_code == 0, done.output


def test_the_help_names_every_loss() -> None:
    from vauban.cli.train import train as command
    from vauban.training.losses import LOSSES

    named = set(re.findall(r"[\w-]+", str(command.__annotations__["loss"])))
    assert {name for name, kind in LOSSES.items() if kind.__module__.startswith("vauban.")} <= named


def test_a_smoothing_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="smoothing=3: a smoothing of vauban.smoothing is needed"):
        vb.train(convolution(), DATA, 3, **QUICK)  # type: ignore[arg-type]
