"""One engine: Python in memory, Python with a run folder, the command line and Ray's workers give the same counts and claims."""

import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import vauban as vb
from vauban.cli import app
from vauban.data import load
from vauban.models import load as load_model
from vauban.models import packaged

METHODS: dict[str, dict[str, Any]] = {
    "fixed": {"smoothing": "gaussian:sigma=0.5", "n": 700, "alpha": 0.01, "seed": 5},
    "sequential": {"smoothing": "gaussian:sigma=0.5", "n": 2_000, "stop": "target:radius=0.5", "seed": 5},
    "chosen": {"smoothing": "laplace:sigma=0.4", "n": 300, "n0": 40, "seed": 5},
    "exact": {"smoothing": "splitting:sigma=0.2"},
}
EVERY, LIMIT = 900, 6


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def python(settings: dict[str, Any], **more: Any) -> vb.Certificates:
    given = {key: value for key, value in settings.items() if key != "smoothing"}
    smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), settings["smoothing"], rows=50)
    digits = load("mnist:split=test").select(EVERY, LIMIT)
    return smoothed.certify(digits, progress=False, **given, **more)


def command_line(settings: dict[str, Any], out: Path, *more: str) -> None:
    options = [f"--{key}" if len(key) > 1 else f"-{key}" for key in settings]
    pairs = [str(part) for pair in zip(options, settings.values(), strict=True) for part in pair]
    command = [
        "certify",
        *pairs,
        "--every",
        str(EVERY),
        "--limit",
        str(LIMIT),
        "--rows",
        "50",
        "--json",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(app, [*command, *more])
    assert done.exit_code == 0, done.output


def sealed(folder: Path) -> dict[str, str]:
    """The seal without the picture, which the command line draws and Python only if it is asked to."""
    found: dict[str, str] = json.loads((folder / "seal.json").read_text())
    return {name: digest for name, digest in found.items() if name != "curve.png"}


@pytest.mark.parametrize(
    ("name", "on_ray"), [("fixed", False), *(pytest.param(name, True, marks=pytest.mark.slow) for name in METHODS)]
)
def test_all_callers_give_the_same_counts_and_certificates(
    name: str, on_ray: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings, places = METHODS[name], ["cli", "saved", *["ray"] * on_ray]
    memory = python(settings)
    folder = python(settings, out=tmp_path / "python")
    command_line(settings, tmp_path / "cli")
    if on_ray:
        python(settings, out=tmp_path / "ray", on=f"{request.getfixturevalue('ray_cluster').on},workers=2")
    memory.save(tmp_path / "saved")
    assert memory == folder
    for place in ("python", *places):
        run = vb.Run.open(tmp_path / place)
        assert run.certificates() == memory
        assert run.votes.digest("") == vb.Run.open(tmp_path / "python").votes.digest("")
        run.verify()
    for place in places:
        assert sealed(tmp_path / place) == sealed(tmp_path / "python"), place
        for file in ("manifest.json", "claims.csv"):
            assert (tmp_path / place / file).read_bytes() == (tmp_path / "python" / file).read_bytes(), (place, file)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_of_one_caller_is_finished_by_another(name: str, tmp_path: Path) -> None:
    """Begun in Python, stopped by Ctrl-C, gone on by the command line."""
    settings = METHODS[name]
    whole = python(settings, out=tmp_path / "whole")
    seen = [0]

    def stop(progress: vb.Progress) -> None:
        seen[0] += 1
        if seen[0] == 4:
            raise KeyboardInterrupt

    given = {key: value for key, value in settings.items() if key != "smoothing"}
    smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), settings["smoothing"], rows=50, in_flight=1)
    with pytest.raises(KeyboardInterrupt):
        smoothed.certify(load("mnist").select(EVERY, LIMIT), progress=stop, out=tmp_path / "run", **given)
    assert not (tmp_path / "run" / "seal.json").exists()
    assert vb.Run.open(tmp_path / "run").votes.votes_cast < vb.Run.open(tmp_path / "whole").votes.votes_cast
    assert any((tmp_path / "run" / name).exists() for name in ("tallies.jsonl", "ballots.jsonl"))
    command_line(settings, tmp_path / "run")
    assert vb.Run.open(tmp_path / "run").certificates() == whole
    assert sealed(tmp_path / "run") == sealed(tmp_path / "whole")


BECOMES = {
    "out": "out",
    "smoothing": "SmoothedClassifier(smoothing)",
    "data": "x",
    "source": "x",
    "shuffle": "x",
    "skip_bad": "x",
    "workers": "x",
    "input_range": "SmoothedClassifier(input_range)",
    "standardise": "SmoothedClassifier(standardise)",
    "keep": "keep",
    "model": "SmoothedClassifier(model)",
    "weights": "SmoothedClassifier(model)",
    "k": "k",
    "n": "n",
    "stop": "stop",
    "seconds": "seconds",
    "alpha": "alpha",
    "bounds": "bounds",
    "label": "label",
    "n0": "n0",
    "every": "x",
    "limit": "x",
    "batch": "SmoothedClassifier(in_flight)",
    "rows": "SmoothedClassifier(rows)",
    "block": "SmoothedClassifier(block)",
    "precision": "SmoothedClassifier(precision)",
    "backend": "SmoothedClassifier(backend)",
    "compile": "SmoothedClassifier(compile)",
    "tune": "SmoothedClassifier(compile)",
    "arithmetic": "SmoothedClassifier(arithmetic)",
    "stochastic": "SmoothedClassifier(stochastic)",
    "depends": "SmoothedClassifier(depends)",
    "device": "SmoothedClassifier(device)",
    "on": "on",
    "extend": "extend",
    "seed": "seed",
    "announce": "announce",
    "nonce_from": "nonce_from",
    "nonce": "nonce",
    "json": "progress",
    "radii": None,
}
"""What every option of `vauban certify` becomes; `radii` only chooses the rows of the table that is printed."""


def test_every_option_of_certify_is_an_argument_of_certify() -> None:
    command = typer.main.get_command(app).commands["certify"]  # type: ignore[attr-defined]
    options = {parameter.name for parameter in command.params if parameter.name != "help"}
    assert options == set(BECOMES)
    arguments = set(inspect.signature(vb.SmoothedClassifier.certify).parameters)
    construction = set(inspect.signature(vb.SmoothedClassifier).parameters)
    for option, becomes in BECOMES.items():
        if becomes is None:
            continue
        if becomes.startswith("SmoothedClassifier("):
            assert becomes.removeprefix("SmoothedClassifier(")[:-1] in construction, option
        else:
            assert becomes in arguments, option
    python_only = arguments - set(BECOMES.values())
    drawn_or_brought_by_data = {"y", "index", "picture"}
    assert python_only == {"self", "order", *drawn_or_brought_by_data}


def test_an_extended_run_keeps_its_claim_and_makes_a_second(tmp_path: Path) -> None:
    settings, folder = METHODS["fixed"] | {"n": 200}, tmp_path / "run"
    first = python(settings, out=folder)
    claims, manifest = (folder / "claims.csv").read_bytes(), (folder / "manifest.json").read_bytes()
    more = python(settings, out=folder, extend=800)
    assert more.votes_per_input == 800
    assert more.counts.tolist() == python(settings | {"n": 800}).counts.tolist()  # votes went on at the same addresses
    assert (folder / "claims.csv").read_bytes() == claims
    assert (folder / "manifest.json").read_bytes() == manifest
    run = vb.Run.open(folder)
    assert run.extensions == (800,)
    assert run.certificates() == first
    assert run.certificates(n=800) == more
    assert run.verify().extensions == (800,)
    command_line(settings, folder, "--extend", "800")  # the same again casts no vote
    command_line(settings, folder, "--extend", "1600")
    assert vb.Run.open(folder).extensions == (800, 1600)
    said = CliRunner().invoke(app, ["verify", str(folder)])
    assert "Extended to 1,600 votes" in said.stdout
    assert "sum of their alphas" in said.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 200 votes that was extended to 800."""
    settings, folder = METHODS["fixed"] | {"n": 200}, tmp_path_factory.mktemp("extended") / "run"
    python(settings, out=folder)
    python(settings, out=folder, extend=800)
    return folder


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: (f / "claims-800.csv").write_text((f / "claims.csv").read_text()), "claims-800.csv line"),
        (lambda f: (f / "claims-800.csv").unlink(), "claims-800.csv is missing"),
        (lambda f: (f / "extensions.jsonl").write_text(""), "not its next look"),
        (lambda f: (f / "extensions.jsonl").write_text('{"n":800,"check":"0"}\n'), "line 1"),
    ],
)
def test_a_bent_extension_is_a_lie(extended: Path, tmp_path: Path, change: Any, complaint: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(extended, folder)
    change(folder)
    with pytest.raises(vb.errors.Lie, match=complaint):
        vb.Run.open(folder).verify()


def test_what_cannot_be_extended_is_refused(tmp_path: Path) -> None:
    settings = METHODS["fixed"] | {"n": 200}
    with pytest.raises(vb.errors.BadInput, match="holds no run to extend"):
        python(settings, out=tmp_path / "new", extend=300)
    with pytest.raises(vb.errors.BadInput, match="continues a run folder"):
        python(settings, extend=300)
    python(settings, out=tmp_path / "run")
    with pytest.raises(vb.errors.BadInput, match="give a larger number"):
        python(settings, out=tmp_path / "run", extend=200)
    for n in (300, 600, 1_000):
        with pytest.raises(vb.errors.BadInput, match="chosen after looking .* 400 is the next"):
            python(settings, out=tmp_path / "run", extend=n)
    for name in ("sequential", "exact"):
        python(METHODS[name], out=tmp_path / name)
        with pytest.raises(vb.errors.BadInput, match="only a fixed number of votes"):
            python(METHODS[name], out=tmp_path / name, extend=3_000)


def test_certificates_compare_pickle_and_show(tmp_path: Path) -> None:
    certs = python(METHODS["fixed"], out=tmp_path / "run")
    again = pickle.loads(pickle.dumps(certs))
    assert again == certs
    again.radius[0] += 1e-9
    assert again != certs
    assert certs != "certificates"
    assert "certified at radius" in certs._repr_html_()
    run = vb.Run.open(tmp_path / "run")
    assert "gaussian:sigma=0.5" in run._repr_html_()
    assert "6 of 6 inputs done" in repr(run)
    table = run.to_pandas(k=2)
    assert list(table.columns[:5]) == ["index", "truth", "label", "radius", "abstained"]
    assert table["index"].tolist() == certs.index.tolist()
    assert table["count_3"].tolist() == certs.counts[:, 3].tolist()
    import matplotlib

    backend = matplotlib.get_backend()
    run.plot(tmp_path / "curve.png", k=(3,))
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    assert matplotlib.get_backend() == backend


def test_bare_counts_of_any_form(tmp_path: Path) -> None:
    counts, labels = [[990, 10], [600, 400]], [0, 0]
    by_object = vb.derive(counts, labels, vb.Gaussian(sigma=0.5))
    assert (
        by_object == vb.derive(counts, labels, "gaussian:sigma=0.5") == vb.derive(counts, labels, vb.Gaussian(0.5).law)
    )
    exact = vb.derive([[300, 53]], [0], "splitting:sigma=0.4")
    assert exact.exact
    assert exact.radius[0] == pytest.approx(123 / 255)
    with pytest.raises(vb.errors.BadInput, match="derived from bare counts"):
        by_object.save(tmp_path / "run")
    with pytest.raises(vb.errors.BadInput, match="gaussian:sigma=0.5"):
        vb.derive(counts, labels, 3)


def test_version_and_module(tmp_path: Path) -> None:
    for command in (["--version"], ["verify", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "vauban", *command], capture_output=True, text=True, check=True, env=os.environ
        )
        assert ("vauban 0." in done.stdout) == (command == ["--version"])


def test_lemma_11_is_reachable_from_the_command_line(tmp_path: Path) -> None:
    certs = python(METHODS["fixed"], out=tmp_path / "run")
    for method in ("binomial", "bernstein"):
        done = CliRunner().invoke(
            app, ["claim", str(tmp_path / "run"), "--dataset-claim", method, "--radii", "0", "--json"]
        )
        said = json.loads(done.stdout)
        assert said["dataset_claim"] == method
        assert said["certified"][0]["at_least"] == certs.accuracy_claim(0.0, 1e-3, method)


class Pairs(torch.utils.data.Dataset):
    """Digits as a torch data set of (picture in [0, 1], label)."""

    def __init__(self, count: int = LIMIT):
        digits = load("mnist").select(EVERY, count)
        self.images, self.labels_ = digits.images, digits.labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.images[i]).float() / 255, int(self.labels_[i])


def test_arrays_tensors_data_sets_and_loaders_are_the_same_inputs() -> None:
    smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), "gaussian:sigma=0.5", rows=50)
    digits = load("mnist").select(EVERY, LIMIT)
    settings: dict[str, Any] = {"n": 100, "seed": 2, "alpha": 0.01, "progress": False}
    plain = smoothed.certify(digits.images, digits.labels, **settings)
    assert plain.index.tolist() == list(range(LIMIT))  # by position, where nothing else says
    named = smoothed.certify(digits, index=range(LIMIT), **settings)
    assert np.array_equal(named.counts, plain.counts)
    assert not np.array_equal(smoothed.certify(digits, **settings).counts, plain.counts)  # the data set's own index
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=4)
    for source in (
        Pairs(),
        loader,
        torch.utils.data.TensorDataset(torch.from_numpy(digits.images), torch.tensor(digits.labels)),
    ):
        assert np.array_equal(smoothed.certify(source, **settings).counts, plain.counts)
    with pytest.raises(vb.errors.BadInput, match="shuffle=False"):
        smoothed.certify(torch.utils.data.DataLoader(Pairs(), shuffle=True), **settings)
    with pytest.raises(vb.errors.BadInput, match="names an input twice"):
        smoothed.certify(digits.images, digits.labels, index=[0, 1, 2, 3, 4, 4], **settings)


def test_nothing_that_is_lent_is_changed(tmp_path: Path) -> None:
    module = load_model(packaged("mnist")).module.train()
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    strides = [parameter.stride() for parameter in module.parameters()]
    torch.manual_seed(3)
    np.random.seed(3)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), torch.get_num_threads()  # type: ignore[union-attr]
    smoothed = vb.SmoothedClassifier(module, "gaussian:sigma=0.5", num_classes=10)
    before = smoothed.rows, smoothed.block, smoothed.compile
    digits = load("mnist").select(EVERY, 3)
    for stop in ("fixed", "target:radius=0.2"):
        smoothed.certify(digits, n=200, alpha=0.01, stop=stop, out=tmp_path / stop.replace(":", ""), progress=False)
    torch.set_num_threads(1)
    assert (smoothed.rows, smoothed.block, smoothed.compile) == before
    assert module.training
    assert all(
        parameter.requires_grad == other.requires_grad
        for parameter, other in zip(module.parameters(), module.parameters(), strict=True)
    )
    assert [parameter.stride() for parameter in module.parameters()] == strides
    assert all(torch.equal(tensor, weights[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[union-attr]
    assert torch.get_num_threads() == states[2]


def test_a_model_that_has_learned_since_is_certified_as_it_is_now() -> None:
    """A copy in another layout or precision follows the caller's module."""
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2 * 36, 3))
    x = np.random.default_rng(0).integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)
    for precision in ("fp32", "bf16"):
        how = {"num_classes": 3, "precision": precision, "backend": "torch"}
        smoothed = vb.SmoothedClassifier(module, "gaussian:sigma=0.3", **how)
        first = smoothed.certify(x, [0, 1], n=200, seed=1, alpha=0.01)
        with torch.no_grad():
            module[2].bias.copy_(torch.tensor([0.0, 0.0, 100.0]))
        second = smoothed.certify(x, [0, 1], n=200, seed=1, alpha=0.01)
        assert second.counts[:, 2].tolist() == [200, 200]
        assert first.counts.tolist() != second.counts.tolist()
        with torch.no_grad():
            module[2].bias.zero_()
