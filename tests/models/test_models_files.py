"""Model files: saved whole, loaded as they were, in every usual wrapping, and never run."""

import os
import pickle
from argparse import Namespace
from collections import OrderedDict

import pytest
import safetensors.torch
import torch

from vauban import models
from vauban.errors import BadInput
from vauban.models import registry

TINY = "cnn-small:size=4,classes=3,mean=0.5,std=0.25"
BARE = "cnn-small:size=4,classes=3"


@pytest.fixture
def net():
    return models.build(TINY, seed=7)


@pytest.fixture
def state(net):
    return net.net.state_dict()


@pytest.fixture
def saved(tmp_path, net):
    models.save(tmp_path / "tiny.safetensors", net, TINY, {"sigma": "0.5", "by": "test"})
    return tmp_path / "tiny.safetensors"


def same(loaded, net) -> bool:
    x = torch.rand(2, 1, 4, 4)
    return torch.equal(loaded.module(x), net.eval()(x))


def test_saved_models_come_back_as_they_were(saved, net):
    loaded = models.load(str(saved))
    assert same(loaded, net)
    assert loaded.spec == "cnn-small:channels=1,classes=3,size=4,mean=0.5,std=0.25"
    assert loaded.metadata == {"sigma": "0.5", "by": "test"}
    assert (loaded.num_classes, loaded.channels) == (3, 1)
    assert not loaded.module.training
    assert not any(tensor.requires_grad for tensor in loaded.module.parameters())


def test_files_hold_public_names_and_are_the_same_bytes_every_time(saved, net, state, tmp_path):
    assert set(safetensors.torch.load_file(saved)) == set(state)
    for name in ("a", "b", "c"):
        models.save(tmp_path / f"{name}.safetensors", net, TINY, {"by": "test", "sigma": "0.5"})
        assert (tmp_path / f"{name}.safetensors").read_bytes() == saved.read_bytes()


def test_fingerprint_depends_on_spec_and_every_tensor(saved, net, tmp_path):
    first = models.load(str(saved)).fingerprint
    assert models.load(TINY, saved).fingerprint == first
    with torch.no_grad():
        net.net.fc2.bias[1] += 1e-3
    models.save(tmp_path / "moved.safetensors", net, TINY, {})
    assert models.load(str(tmp_path / "moved.safetensors")).fingerprint != first
    fresh = {models.load(s, allow_random=True).fingerprint for s in (BARE, TINY, "cnn-small:size=4", BARE)}
    assert len(fresh) == 3


def test_a_failed_save_leaves_the_old_file_and_no_other(saved, net, monkeypatch):
    before = saved.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        models.save(saved, models.build(TINY, seed=8), TINY, {})
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_save_refuses_what_load_could_not_read(tmp_path, net):
    path = tmp_path / "x.safetensors"
    with pytest.raises(BadInput, match="does not fit the model"):
        models.save(path, net, "cnn-small:size=4", {})
    with pytest.raises(BadInput, match=r"does not end in .safetensors"):
        models.save(tmp_path / "x.pt", net, TINY, {})
    with pytest.raises(BadInput, match="text to text"):
        models.save(path, net, TINY, {"epochs": 3})
    with pytest.raises(BadInput, match="text to text"):
        models.save(path, net, TINY, {"vauban_model": "cnn"})
    assert not path.exists()


def test_wrapped_and_half_precision_modules_are_saved(tmp_path, net):
    path = tmp_path / "half.safetensors"
    models.save(path, torch.nn.DataParallel(net), TINY, {})
    assert same(models.load(path), net)
    models.save(path, net.to(torch.bfloat16), TINY, {})
    assert models.load(path).module.net.fc1.weight.dtype == torch.float32


@pytest.mark.parametrize("prefix", ["", "module.", "1.", "1.module.", "module.1.", "net.", "_orig_mod.net.", "model."])
@pytest.mark.parametrize("key", [None, "state_dict", "model", "model_state_dict", "net"])
@pytest.mark.parametrize("zipped", [True, False])
def test_usual_wrappings_are_opened(tmp_path, state, net, prefix, key, zipped):
    named = OrderedDict((prefix + name, tensor) for name, tensor in state.items())
    held = named if key is None else {"epoch": 90, "arch": "x", key: named, "optimizer": {"state": {}, "lr": [0.1]}}
    path = tmp_path / "checkpoint.pth.tar"
    torch.save(held, path, _use_new_zipfile_serialization=zipped)
    loaded = models.load(TINY, path)
    assert same(loaded, net)
    assert loaded.metadata == {}


def test_counters_that_old_torch_did_not_write_may_be_missing(tmp_path):
    net = models.build("resnet18:channels=1,classes=2", seed=0)
    state = {f"1.{n}": t for n, t in net.state_dict().items() if not n.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "old.pt")
    loaded = models.load("resnet18:channels=1,classes=2", tmp_path / "old.pt")
    x = torch.rand(1, 1, 8, 8)
    assert torch.equal(loaded.module(x), net.eval()(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fc2.bias": None}, "it lacks fc2.bias"),
        ({"fc3.bias": torch.zeros(3)}, "it has besides module.fc3.bias"),
        ({"fc2.bias": torch.zeros(4)}, r"fc2.bias is float32 \[4\] and float32 \[3\] is needed"),
        ({"fc2.bias": torch.zeros(3, dtype=torch.int64)}, r"fc2.bias is int64 \[3\]"),
        ({f"x{i}": torch.zeros(1) for i in range(9)}, "and 5 more"),
    ],
)
def test_nothing_is_missing_or_left_over_in_silence(tmp_path, state, change, words):
    changed = {f"module.{n}": t for n, t in {**state, **change}.items() if t is not None}
    torch.save(changed, tmp_path / "odd.pt")
    with pytest.raises(BadInput, match=words):
        models.load(TINY, tmp_path / "odd.pt")


def test_tensors_beside_the_network_are_named(tmp_path, state):
    torch.save({"0.mean": torch.zeros(1), **{f"1.{n}": t for n, t in state.items()}}, tmp_path / "odd.pt")
    with pytest.raises(BadInput, match=r"it has besides 0.mean; is it"):
        models.load(TINY, tmp_path / "odd.pt")


class Runs:
    """Pickles to a call that leaves a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_files_that_would_run_something_are_refused(tmp_path, state, net):
    mark, path = tmp_path / "was-run", tmp_path / "evil.pt"
    for zipped in (True, False):
        torch.save({"state_dict": state, "x": Runs(mark)}, path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(BadInput, match=r"asks for \w+.system, which could run code: refused"):
            models.load(TINY, path)
    path.write_bytes(pickle.dumps(Runs(mark), 2))
    with pytest.raises(BadInput, match="was run"):
        models.load(TINY, path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists(), "the files above would not have done anything anyway"
    for held, words in ((net, "Sequential"), ({"state_dict": state, "args": Namespace(lr=1)}, "argparse.Namespace")):
        torch.save(held, path)
        with pytest.raises(BadInput, match=words):
            models.load(TINY, path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused(tmp_path, net):
    path = tmp_path / "program.pt"
    torch.jit.save(torch.jit.trace(net.eval(), torch.rand(1, 1, 4, 4)), path)
    with pytest.raises(BadInput, match="TorchScript program, which loading would run: refused"):
        models.load(TINY, path)


def test_no_file_chooses_code_to_import(tmp_path, net, monkeypatch):
    (tmp_path / "planted.py").write_text("import pathlib; pathlib.Path('was-run').touch()")
    monkeypatch.chdir(tmp_path)
    safetensors.torch.save_file(net.state_dict(), "evil.safetensors", {"vauban_model": "planted:make"})
    with pytest.raises(BadInput, match=r"asks to import planted:make, and no file may choose code to run"):
        models.load("evil.safetensors")
    assert not (tmp_path / "was-run").exists()


def test_models_of_other_code_are_saved_and_loaded_by_name(tmp_path, monkeypatch):
    (tmp_path / "foreign_nets.py").write_text(
        "import torch\ndef make(classes=2):\n    return torch.nn.Linear(3, classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = "foreign_nets:make:classes=4"
    net = models.build(spec, seed=3)
    models.save("f.safetensors", net, spec, {})
    loaded = models.load(spec, "f.safetensors")
    assert torch.equal(loaded.module.weight, net.weight)
    assert (loaded.spec, loaded.num_classes, loaded.channels) == (spec, 4, None)
    assert models.load(spec).num_classes == 4


def test_a_file_says_how_it_is_loaded_and_its_metadata_is_read_without_its_network(tmp_path, net, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.save("own.safetensors", net, TINY, {"accuracy": "0.9"})
    assert models.how_to_load("own.safetensors") == "--model own.safetensors"
    models.save("a b.safetensors", net, "never_imported:Net:width=3", {"accuracy": "0.8"})
    assert models.how_to_load("a b.safetensors") == "--model never_imported:Net:width=3 --weights 'a b.safetensors'"
    assert models.read_metadata("a b.safetensors") == {"accuracy": "0.8"}
    torch.save(net.state_dict(), "plain.pt")
    assert models.how_to_load("plain.pt") == "--model ARCHITECTURE --weights plain.pt"
    for path in ("missing.safetensors", "missing.pt"):
        with pytest.raises(BadInput, match="do not exist"):
            models.how_to_load(path)


def test_no_file_chooses_code_by_way_of_a_composition(tmp_path, net, monkeypatch):
    (tmp_path / "planted.py").write_text("import pathlib; pathlib.Path('was-run').touch()")
    monkeypatch.chdir(tmp_path)
    for spec in ("planted:make + planted:make", "dncnn:channels=1 > planted:make"):
        safetensors.torch.save_file(net.state_dict(), "evil.safetensors", {"vauban_model": spec})
        with pytest.raises(BadInput, match="no file may choose code to run"):
            models.load("evil.safetensors")
        with pytest.raises(BadInput, match="which one file cannot hold with others: save each part"):
            models.save("x.safetensors", models.build("cnn + cnn").eval(), "planted:make + planted:make", {})
    assert not (tmp_path / "was-run").exists()


def test_residual_networks_are_read_under_both_usual_sets_of_names(tmp_path):
    net = models.build("resnet18:channels=1,classes=2,width=4", seed=0)
    theirs = {n.replace("downsample", "shortcut").replace("fc.", "linear."): t for n, t in net.state_dict().items()}
    torch.save({"net": {f"module.{n}": t for n, t in theirs.items()}, "acc": 1.0, "epoch": 3}, tmp_path / "ckpt.pth")
    loaded = models.load("resnet18:channels=1,classes=2,width=4", tmp_path / "ckpt.pth")
    x = torch.rand(1, 1, 8, 8)
    assert torch.equal(loaded.module(x), net.eval()(x))


def test_random_weights_must_be_asked_for(net):
    with pytest.raises(BadInput, match=r"has no weights; give a file of weights .*weights=FILE, or allow_random=True"):
        models.load(BARE)
    loaded = models.load(BARE, allow_random=True)
    assert torch.equal(loaded.module.fc1.weight, models.build(BARE, seed=0).fc1.weight)


def test_files_and_specs_that_contradict_each_other_are_refused(saved, tmp_path, state):
    with pytest.raises(BadInput, match=r"was saved as .*mean=0.5.* not as"):
        models.load(BARE, saved)
    with pytest.raises(BadInput, match="give one file, or a spec and a file"):
        models.load(saved, saved)
    torch.save(state, tmp_path / "plain.pt")
    safetensors.torch.save_file(state, tmp_path / "plain.safetensors")
    for name in ("plain.pt", "plain.safetensors"):
        with pytest.raises(BadInput, match="does not say which network it belongs to"):
            models.load(tmp_path / name)
    assert models.load(TINY, tmp_path / "plain.safetensors").num_classes == 3


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.safetensors", b"", "not a readable safetensors"),
        ("x.safetensors", b"\xff" * 64, "not a readable safetensors"),
        ("x.pt", b"", "is broken, or holds more than tensors"),
        ("x.pt", b"garbage" * 9, "is broken, or holds more than tensors"),
        ("x.onnx", b"1", "does not end in"),
        ("x.pth", None, "do not exist"),
    ],
)
def test_broken_files_are_refused(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=words):
        models.load(BARE, tmp_path / name)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([1, 2], "holds no state dict"),
        ({}, "holds no state dict"),
        ({"epoch": 3}, "holds 'epoch', and one state dict under"),
        ({"model": {"a": torch.zeros(1)}, "net": {"a": torch.zeros(1)}}, "one state dict under"),
    ],
)
def test_files_without_one_state_dict_are_refused(tmp_path, held, words):
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(BadInput, match=words):
        models.load(BARE, tmp_path / "x.pt")


def test_a_wrapping_that_holds_itself_ends(tmp_path):
    held: dict = {"epoch": 1}
    held["model"] = held
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(BadInput, match="holds no state dict"):
        models.load(BARE, tmp_path / "x.pt")


def test_devices_that_are_not_there_are_explained(saved):
    with pytest.raises(BadInput, match="device=zebra cannot be used here"):
        models.load(saved, device="zebra")


def test_packaged_weights_are_found_by_the_name_of_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    assert models.packaged("mnist") is None
    assert models.packaged("cifar10:split=test") is None
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "mnist-gaussian.safetensors").touch()
    assert models.packaged("mnist:split=test") == tmp_path / "weights" / "mnist-gaussian.safetensors"
