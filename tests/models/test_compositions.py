"""Ensembles and denoisers: one model, one fingerprint, one file; the answer to a view does not depend on its neighbours."""

import pickle

import pytest
import torch
from torch import nn

import vauban as vb
from vauban import models
from vauban.engine import network
from vauban.engine.network import BaseClassifier, check_independence
from vauban.errors import BadInput
from vauban.models.ensembles import Ensemble, chunk_size
from vauban.replay import replay
from vauban.runs import manifest as manifests

TINY = "cnn-small:size=6,classes=3"
ROWS = 40


def tiny(seed: int, spec: str = TINY) -> models.LoadedModel:
    """A network with scores that vary from view to view."""
    net = models.build(spec, seed=seed)
    with torch.no_grad():
        for tensor in net.parameters():
            tensor *= 2
    spec = models.canonical(spec)
    return models.LoadedModel(net.eval(), spec, models.files.fingerprint(spec, net), 3, 1)


@pytest.fixture
def files(tmp_path):
    for i in range(3):
        models.save(tmp_path / f"m{i}.safetensors", tiny(i).module, TINY, {})
    models.save(tmp_path / "d.safetensors", models.build("unet:depth=1,width=4,channels=1", seed=5), UNET, {})
    return [str(tmp_path / f"m{i}.safetensors") for i in range(3)] + [str(tmp_path / "d.safetensors")]


UNET = "unet:depth=1,width=4,channels=1"


def views(count: int = ROWS, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


def test_scores_are_averaged():
    parts = [tiny(i) for i in range(3)]
    whole = vb.ensemble(parts)
    scores = [part.module(views()) for part in parts]
    assert torch.equal(whole.module(views()), (scores[0] + scores[1] + scores[2]) / 3)


def test_the_rest_is_asked_where_the_first_disagree_and_nowhere_else():
    parts = [tiny(i) for i in range(4)]
    whole = vb.ensemble(parts, consensus=2).module
    scores = torch.stack([part.module(views()) for part in parts])
    agree = scores[0].argmax(1) == scores[1].argmax(1)
    assert 3 < agree.sum() < ROWS - 3
    expected = torch.where(agree[:, None], scores[:2].mean(0), scores.mean(0))
    assert torch.allclose(whole(views()), expected, atol=1e-5)
    asked = whole.asked(views())
    assert asked.members.tolist() == [2 if same else 4 for same in agree.tolist()]
    assert asked.mean == 2 + 2 * float((~agree).double().mean())
    chunks = -(-int((~agree).sum()) // chunk_size(ROWS))
    assert asked.computed == 2 + 2 * chunks * chunk_size(ROWS) / ROWS
    assert vb.ensemble(parts).module.asked(views()).mean == 4


class Counting(nn.Module):
    """Keeps the shape of everything it is asked about; its scores depend on the number of rows."""

    def __init__(self):
        super().__init__()
        self.shapes: list[int] = []

    def forward(self, x):
        self.shapes.append(len(x))
        return torch.stack([x.sum((1, 2, 3)) * len(x), torch.zeros(len(x)), torch.ones(len(x))], 1)


def test_the_rest_is_asked_in_one_shape_however_many_are_left():
    last = Counting()
    whole = Ensemble([tiny(0).module, tiny(1).module, last], consensus=2)
    whole(views())
    agreeing = views()[whole.asked(views()).members == 2][:1]
    for count in range(0, ROWS, 3):
        whole(torch.cat([views()[:count], agreeing.expand(ROWS - count, 1, 6, 6)]))
    assert set(last.shapes) == {chunk_size(ROWS)} == {16}
    last.shapes.clear()
    whole(agreeing.expand(ROWS, 1, 6, 6))
    assert last.shapes == []


def test_no_program_is_compiled_for_a_number_of_views_that_are_left():
    from torch._dynamo.testing import CompileCounter

    whole = Ensemble([tiny(i).module for i in range(3)], consensus=2)
    counter = CompileCounter()
    compiled = torch.compile(whole, backend=counter, dynamic=False)
    agreeing = views()[whole.asked(views()).members == 2][:1]
    frames = set()
    with torch.inference_mode():
        for count in range(0, ROWS, 5):
            some = torch.cat([views()[:count], agreeing.expand(ROWS - count, 1, 6, 6)])
            assert torch.equal(compiled(some), whole(some))
            frames.add(counter.frame_count)
    assert len(frames) == 1


def scores_of_orders(model: nn.Module, seed: int = 0):
    pool = views(2 * ROWS, seed)

    def reordered(order: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return model(pool[order])

    return reordered


@pytest.mark.parametrize("consensus", [0, 2, 3])
def test_the_answer_to_a_view_does_not_depend_on_its_neighbours(consensus):
    whole = vb.ensemble([tiny(i) for i in range(4)], consensus=consensus).module
    assert check_independence(scores_of_orders(whole), ROWS, whole, most_repeats=3)
    assert not whole.probing


def test_an_ensemble_that_asks_all_its_members_is_checked_once():
    asked = {}
    for consensus in (0, 2):
        whole, calls = vb.ensemble([tiny(i) for i in range(3)], consensus=consensus).module, []
        whole.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        check_independence(scores_of_orders(whole), ROWS, whole, most_repeats=3)
        asked[consensus] = len(calls)
    assert asked[2] == 2 * asked[0]


class ByPlace(nn.Module):
    """A network whose scores depend on the place in the batch by rounding."""

    def forward(self, x):
        place = 1 + 1e-6 * torch.arange(len(x))
        return torch.stack([x.sum((1, 2, 3)) * place, torch.zeros(len(x)), torch.ones(len(x))], 1)


def test_a_later_network_that_depends_on_the_place_is_refused_even_if_the_probe_never_needs_it():
    first = tiny(0).module
    whole = Ensemble([first, first, ByPlace()], consensus=2)
    assert whole.asked(views()).mean == 2
    with pytest.raises(BadInput, match="depends on the other views"):
        check_independence(scores_of_orders(whole), ROWS, whole, most_repeats=3)
    assert not whole.probing


def test_files_joined_in_a_text_are_the_model_of_one_file(files, tmp_path):
    for text, module in (
        ("+".join(files[:3]), vb.ensemble(files[:3]).module),
        ("ensemble:consensus=2+" + "+".join(files[:3]), vb.ensemble(files[:3], consensus=2).module),
        (f"{files[3]} > {files[0]}", vb.denoise(files[3], files[0]).module),
        (f"{files[0]} + {files[3]} > {files[1]}", vb.ensemble([files[0], vb.denoise(files[3], files[1])]).module),
    ):
        joined = models.load(text)
        assert torch.equal(joined.module(views()), module(views()))
        assert (joined.num_classes, joined.channels) == (3, 1)
        models.save(tmp_path / "whole.safetensors", joined.module, joined.spec, {"by": "test"})
        whole = models.load(tmp_path / "whole.safetensors")
        assert (whole.spec, whole.fingerprint) == (joined.spec, joined.fingerprint)
        assert whole.metadata == {"by": "test"}
        assert torch.equal(whole.module(views()), joined.module(views()))
        assert models.load(joined.spec, tmp_path / "whole.safetensors").fingerprint == joined.fingerprint
        assert models.load(models.canonical(joined.spec), tmp_path / "whole.safetensors").spec == joined.spec


def test_tensors_of_a_file_are_filled_in_behind_normalisations(tmp_path):
    spec = "dncnn:channels=1,depth=2,width=2 > cnn-small:size=6,mean=0.5 + cnn-small:size=6,std=0.5"
    one, other = (models.build(spec, seed=seed) for seed in (1, 2))
    models.save(tmp_path / "x.safetensors", one, spec, {})
    models.files.fill(other, models.weights.read_weights(tmp_path / "x.safetensors")[0], "x")
    assert torch.equal(one.eval()(views()), other.eval()(views()))


def test_wrapped_compositions_are_saved(files, tmp_path):
    joined = models.load(f"{files[3]} > {files[0]}")
    models.save(tmp_path / "w.safetensors", nn.DataParallel(joined.module), joined.spec, {})
    assert models.load(tmp_path / "w.safetensors").fingerprint == joined.fingerprint


def test_order_rule_and_every_tensor_are_in_the_fingerprint(files):
    a, b, c, d = files
    texts = [f"{a}+{b}+{c}", f"{b}+{a}+{c}", f"ensemble:consensus=2+{a}+{b}+{c}", f"{a}+{b}", f"{d}>{a}", a]
    assert len({models.load(text).fingerprint for text in texts}) == len(texts)
    whole = models.load(texts[0])
    with torch.no_grad():
        whole.module.members[1].fc2.bias[0] += 1e-3
    assert whole.current_fingerprint() != whole.fingerprint
    plain = [vb.ensemble([tiny(0).module, tiny(1), tiny(2)], k) for k in (0, 2)]
    assert isinstance(plain[0], BaseClassifier)
    assert plain[0].num_classes == 3
    assert len({vb.SmoothedClassifier(one, "gaussian:sigma=0.5").identity() for one in plain}) == 2


def test_parts_that_do_not_fit_are_refused(files, tmp_path):
    models.save(
        tmp_path / "four.safetensors", models.build("cnn-small:size=6,classes=4"), "cnn-small:size=6,classes=4", {}
    )
    with pytest.raises(BadInput, match="joins models of 3 and 4 classes: all must have the same"):
        models.load(f"{files[0]}+{tmp_path}/four.safetensors")
    with pytest.raises(BadInput, match="a denoiser .* is needed there"):
        models.load(f"{files[0]} > {files[1]}")
    with pytest.raises(BadInput, match="is not a torch module"):
        vb.ensemble([lambda x: x, tiny(0)])
    with pytest.raises(BadInput, match="the denoiser returned"):
        vb.denoise(nn.Flatten(), tiny(0)).module(views())
    with pytest.raises(BadInput, match=r"consensus=3 in an ensemble of 3: give 2, how many are asked first, or 0"):
        vb.ensemble([tiny(0), tiny(1), tiny(2)], consensus=3)
    with pytest.raises(BadInput, match="give a number from 2 to 3, how many"):
        vb.ensemble([tiny(i) for i in range(4)], consensus=4)
    for consensus in (1, 5):
        with pytest.raises(BadInput, match="two models have no others to ask where they disagree: give 0"):
            vb.ensemble([tiny(0), tiny(1)], consensus=consensus)
    with pytest.raises(BadInput, match="consensus='2' in an ensemble of 3"):
        vb.ensemble([tiny(0), tiny(1), tiny(2)], consensus="2")
    joined = models.load("+".join(files[:2]))
    with pytest.raises(BadInput, match=r"belongs to none of members.0., members.1."):
        models.save(tmp_path / "x.safetensors", tiny(0).module, joined.spec, {})
    models.save(tmp_path / "x.safetensors", joined.module, joined.spec, {})
    tensors = models.weights.read_weights(tmp_path / "x.safetensors")[0]
    torch.save({n: t for n, t in tensors.items() if n != "members.1.fc1.bias"}, tmp_path / "x.pt")
    with pytest.raises(BadInput, match=r"members.1\) does not fit the model: it lacks"):
        models.load(joined.spec, tmp_path / "x.pt")


def test_a_plus_or_colon_in_the_name_of_an_existing_file_is_part_of_it(tmp_path):
    models.save(tmp_path / "a+b.safetensors", tiny(0).module, TINY, {})
    assert models.load(tmp_path / "a+b.safetensors").spec == models.canonical(TINY)


@pytest.mark.parametrize("kind", ["ensemble", "denoised"])
def test_compositions_certify_as_one_model(files, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(network, "_PROBE_SECONDS", 0.0)
    text = f"ensemble:consensus=2+{'+'.join(files[:3])}" if kind == "ensemble" else f"{files[3]} > {files[0]}"
    model = models.load(text)
    smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.5", rows=50)
    x = views(2).clamp(0, 1)
    smoothed.certify(x, n=200, seed=1, n0=10, out=tmp_path / "run", progress=False)
    sent = vb.SmoothedClassifier(pickle.loads(pickle.dumps(model)), "gaussian:sigma=0.5", rows=50)
    sent.certify(x, n=200, seed=1, n0=10, out=tmp_path / "sent", progress=False)
    assert (tmp_path / "run" / "tallies.jsonl").read_text() == (tmp_path / "sent" / "tallies.jsonl").read_text()
    written = manifests.read(tmp_path / "run").model
    assert (written.spec, written.sha256) == (model.spec, model.fingerprint)
    assert replay(tmp_path / "run", model, x, inputs=None, progress=False).inputs == 2
