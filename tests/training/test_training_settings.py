"""What each setting of a training does, on networks small enough to see it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from squares import apart, convolution, pictures, same, tensors

import vauban as vb
from vauban.errors import BadInput, ModelFailed, VaubanError
from vauban.models import build as build_model
from vauban.models import load as load_model
from vauban.models import save as save_model
from vauban.models.files import read_weights
from vauban.smoothing import Gaussian, Smoothing, build
from vauban.training import Recipe, TrainingProgress, train, trainer
from vauban.training.augment import augment, cut_pixels, cut_slices, mixed
from vauban.training.losses import LOSSES, Batch, Loss

DATA = pictures()
SMOOTHING = Gaussian(0.25)
RECIPE = Recipe(epochs=1, batch=30, lr=0.01)


def words(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 2**63 - 1, (count, 5)))


def batches_of(monkeypatch: pytest.MonkeyPatch, **settings: object) -> list[tuple[Batch, torch.Tensor]]:
    """The batches of a training, with the views that were made of each."""
    seen: list[tuple[Batch, torch.Tensor]] = []
    original = Loss.views_of

    def watched(self: Loss, batch: Batch, count: int) -> torch.Tensor:
        seen.append((batch, original(self, batch, count)))
        return seen[-1][1]

    monkeypatch.setattr(Loss, "views_of", watched)
    train(convolution(), DATA, SMOOTHING, RECIPE, **settings)  # type: ignore[arg-type]
    return seen


def noise_of(batch: Batch, views: torch.Tensor) -> torch.Tensor:
    return views - batch.pictures.repeat(len(views) // len(batch.x), 1, 1, 1)


def test_masks_of_a_batch_are_the_same_for_every_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = batches_of(monkeypatch, masks="batch", loss="noise:views=2", accumulate=3)
    for batch, views in seen:
        noise = noise_of(batch, views).view(2, 10, -1)
        assert torch.allclose(noise, noise[:, :1].expand_as(noise), atol=1e-6)
        assert not torch.allclose(noise[0], noise[1], atol=1e-2)
    steps = [noise_of(*seen[part])[0] for part in (0, 2, 3)]
    assert torch.allclose(steps[0], steps[1], atol=1e-6)  # parts of a batch share them, steps do not
    assert not torch.allclose(steps[0], steps[2], atol=1e-2)


def test_masks_of_pictures_are_all_different(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = batches_of(monkeypatch, loss="noise:views=2")
    noise = torch.cat([noise_of(*pair).flatten(1) for pair in seen])
    assert len(torch.unique((noise * 100).round(), dim=0)) == len(noise) == 120
    assert noise.std() == pytest.approx(0.25, rel=0.05)


def test_label_smoothing_reaches_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    network = convolution()
    seen = batches_of(monkeypatch, label_smoothing=0.3)
    batch, views = seen[0]
    with torch.no_grad():
        scores = network.train()(views)
        loss = LOSSES["noise"]().classification(scores[None], batch.labels, batch.label_smoothing)
        log_p = scores.log_softmax(1)
        own = log_p[torch.arange(30), batch.labels]
    assert float(loss) == pytest.approx(float(-(0.7 * own + 0.3 * log_p.mean(1)).mean()), abs=1e-6)
    smoothed = train(network, DATA, SMOOTHING, RECIPE, label_smoothing=0.3)
    assert apart(smoothed.network, train(network, DATA, SMOOTHING, RECIPE).network) > 1e-4


def test_clip_bounds_the_step() -> None:
    settings = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "lr": 1.0}
    network = convolution(norm=False)

    def moved(clip: float) -> float:
        trained = train(network, DATA, SMOOTHING, batch=60, epochs=1, clip=clip, **settings)  # type: ignore[arg-type]
        pairs = zip(trained.network.parameters(), network.parameters(), strict=True)
        return float(sum(((a - b).detach() ** 2).sum() for a, b in pairs)) ** 0.5

    assert moved(0.01) == pytest.approx(0.01, rel=1e-3)
    assert moved(0.0) > 0.1


def test_the_average_follows_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    networks: list[dict[str, torch.Tensor]] = []
    original = trainer.Recorded.update

    def watched(self: trainer.Recorded, *arguments: object) -> torch.Tensor:
        found = original(self, *arguments)  # type: ignore[arg-type]
        networks.append(tensors(self.updater.network))
        return found

    monkeypatch.setattr(trainer.Recorded, "update", watched)
    network = convolution()
    trained = train(network, DATA, SMOOTHING, batch=20, epochs=2, ema=0.5, lr=0.01)
    expected = tensors(network)
    for step, found in enumerate(networks):
        kept = min(0.5, (1 + step) / (10 + step))
        for name, tensor in found.items():
            moving = tensor.is_floating_point()
            expected[name] = kept * expected[name] + (1 - kept) * tensor if moving else tensor
    for name, tensor in tensors(trained.network).items():
        assert torch.allclose(tensor, expected[name], atol=1e-6)


def test_a_flip_mirrors_about_half_of_the_pictures() -> None:
    pictures = torch.arange(200 * 2 * 3 * 4).view(200, 2, 3, 4)
    changed = augment(pictures, "flip", words(200))
    mirrored = (changed == pictures.flip(3)).flatten(1).all(1)
    assert torch.equal(changed[~mirrored], pictures[~mirrored])
    assert 60 < int(mirrored.sum()) < 140


@pytest.mark.parametrize("flips", [False, True])
def test_parts_cut_one_by_one_are_those_cut_by_pixels(flips: bool) -> None:
    padded = torch.randint(0, 256, (40, 3, 12, 14), dtype=torch.uint8)
    down, right = words(40)[:, 0] % 5, words(40)[:, 1] % 5
    mirrored = words(40)[:, 2] % 2 == 0 if flips else None
    parts = cut_slices(padded, 8, 10, down, right, mirrored)
    assert torch.equal(parts, cut_pixels(padded, 8, 10, down, right, mirrored))
    first = padded[0, :, down[0] : down[0] + 8, right[0] : right[0] + 10]
    assert torch.equal(parts[0], first.flip(2) if mirrored is not None and mirrored[0] else first)


def test_a_resized_crop_is_an_enlarged_part() -> None:
    ramp = torch.linspace(0, 1, 32).expand(1, 32, 32)
    both = torch.stack([torch.cat([ramp, ramp.transpose(1, 2)])] * 300)  # first across, then down
    crops = augment(both, "resized-crop", words(300))
    across, down = crops[:, 0], crops[:, 1]
    assert torch.allclose(across[:, :1].expand_as(across), across, atol=1e-5)  # axes stay axes
    assert torch.allclose(down[:, :, :1].expand_as(down), down, atol=1e-5)
    widths, heights = across[:, 0, 16] - across[:, 0, 15], down[:, 16, 0] - down[:, 15, 0]
    widths, heights, whole = widths.abs(), heights.abs(), ramp[0, 0, 1]
    areas = widths * heights / whole**2
    assert areas.min() < 0.2
    assert areas.max() > 0.9
    assert float(areas.mean()) == pytest.approx(
        0.53, abs=0.05
    )  # a little below 0.54: no side is longer than the picture's
    assert (heights > 0).all()
    assert 100 < int((across[:, 0, 16] < across[:, 0, 15]).sum()) < 200
    grid = (both * 255).round().to(torch.uint8)
    assert augment(grid, "resized-crop", words(300)).dtype == torch.uint8


def test_tables_are_not_augmented() -> None:
    with pytest.raises(BadInput, match=r"augment=shift moves pixels .*: use none for \[5\]"):
        augment(torch.zeros(3, 5), "shift", words(3))


def test_mixup_and_cutmix_mix_pictures_and_labels_alike() -> None:
    pictures = torch.zeros(4, 1, 8, 8)
    pictures += torch.arange(4.0).view(4, 1, 1, 1)
    labels = torch.arange(4)
    x, y = mixed(pictures, labels, 4, torch.tensor(0.75), None)
    assert x[2].unique().tolist() == [1.75]
    assert y[2].tolist() == [0, 0.25, 0.75, 0]
    x, y = mixed(pictures, labels, 4, torch.tensor(0.5), torch.tensor([0, 4, 0, 4]))
    assert (x[2, 0, :4, :4] == 1).all()
    assert int((x[2] == 2).sum()) == 48
    assert y[2].tolist() == [0, 0.25, 0.75, 0]


def test_a_loss_that_becomes_nan_stops_with_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Diverges(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = convolution(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += self.training
            return self.inner(x) * (torch.nan if self.calls == 14 else 1)

    out = tmp_path / "m.safetensors"
    settings = {"epochs": 20, "batch": 60, "lr": 0.01}
    with pytest.raises(VaubanError, match="loss became nan at step 14 of 20: .*--lr.*; no checkpoint was written"):
        train(Diverges(), DATA, SMOOTHING, out=out, **settings)
    assert not list(tmp_path.glob("*.checkpoint"))
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", 0.0)
    with pytest.raises(VaubanError, match=r"step 14 of 20: .*m.safetensors.checkpoint holds the last good weights"):
        train(Diverges(), DATA, SMOOTHING, out=out, **settings)
    state = torch.load(tmp_path / "m.safetensors.checkpoint", weights_only=True)
    assert state["step"] == 13
    assert all(tensor.isfinite().all() for tensor in state["network"].values())
    assert not out.exists()


def test_weights_that_become_infinite_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Overflows(torch.optim.SGD):
        def step(self, closure: None = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                parameter.data.fill_(torch.inf)

    monkeypatch.setattr(Recipe, "optimizer_for", lambda self, parameters, device: Overflows(parameters, lr=self.lr))
    with pytest.raises(VaubanError, match="weights became infinite or NaN at step 1 of 1"):
        train(convolution(), DATA, SMOOTHING, out=tmp_path / "m.safetensors", epochs=1, batch=60)
    assert not list(tmp_path.glob("*.safetensors"))


def test_finished_weights_are_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    train(convolution(), DATA, SMOOTHING, RECIPE, out=out)
    before = out.read_bytes()
    with pytest.raises(BadInput, match="exists: give another name, or overwrite it with --overwrite"):
        train(convolution(), DATA, SMOOTHING, RECIPE, out=out, epochs=2)
    assert out.read_bytes() == before
    train(convolution(), DATA, SMOOTHING, RECIPE, out=out, epochs=2, overwrite=True)
    assert out.read_bytes() != before
    with pytest.raises(BadInput, match="ends in .safetensors"):
        train(convolution(), DATA, SMOOTHING, RECIPE, out=tmp_path / "m.pt")


def test_training_starts_from_weights_or_a_checkpoint(tmp_path: Path) -> None:
    settings = {"optimizer": "sgd", "lr": 1e-30, "weight_decay": 0.0}
    first = train("cnn-small", DATA, SMOOTHING, RECIPE, out=tmp_path / "a.safetensors", lr=0.1).network
    train("cnn-small", DATA, SMOOTHING, RECIPE, out=tmp_path / "b.safetensors", lr=0.1, stop_after=1)
    checkpoint = tmp_path / "b.safetensors.checkpoint"
    second = torch.load(checkpoint, weights_only=True)["network"]
    for start, expected in ((tmp_path / "a.safetensors", tensors(first)), (checkpoint, second)):
        found = tensors(train("cnn-small", DATA, SMOOTHING, RECIPE, init=start, seed=5, **settings).network)
        learned = [name for name, _ in first.named_parameters()]
        assert all(torch.equal(found[name], expected[name]) for name in learned)
    with pytest.raises(BadInput, match=r"a.safetensors does not fit the model"):
        train("mlp", DATA, SMOOTHING, RECIPE, init=tmp_path / "a.safetensors")
    with pytest.raises(BadInput, match="do not exist"):
        train("cnn-small", DATA, SMOOTHING, RECIPE, init=tmp_path / "none.safetensors")


def test_a_loss_that_the_smoothing_cannot_have() -> None:
    with pytest.raises(BadInput, match="macer maximizes the radius of gaussian, not of ablation"):
        train(convolution(), DATA, build("ablation:retained=9"), RECIPE, loss="macer")
    with pytest.raises(BadInput, match="leave mixup and cutmix out"):
        train(convolution(), DATA, SMOOTHING, RECIPE, loss="macer:views=2", mixup=0.2)


def test_ones_own_module_is_trained_and_stays_as_it_was(tmp_path: Path) -> None:
    module = convolution(dropout=0.1)
    module[0].weight.requires_grad_(False)
    before, state = tensors(module), torch.get_rng_state()
    seen: list[TrainingProgress] = []
    out = tmp_path / "m.safetensors"
    trained = vb.train(
        module, DATA, "gaussian:sigma=0.25", vb.Recipe(epochs=20, batch=20, lr=0.01), loss="consistency:weight=2",
        callbacks=[seen.append], out=out,
    )  # fmt: skip
    assert module.training
    assert all(parameter.requires_grad == (number != 0) for number, parameter in enumerate(module.parameters()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(trained.network[0].weight, before["0.weight"])  # a fixed layer stays
    assert not trained.network.training
    assert [progress.step for progress in seen] == [10, 20, 30, 40, 50, 60]
    assert seen[-1].accuracy == trained.accuracy > 0.9
    module.load_state_dict(read_weights(out)[0])
    assert same(module, trained.network)


def test_a_callback_that_returns_true_ends_the_training(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    trained = train(
        "cnn-small", DATA, SMOOTHING, RECIPE, epochs=100, out=out, callbacks=lambda progress: progress.step == 20
    )
    assert (trained.step, trained.finished) == (20, True)
    assert load_model(out).metadata["step"] == "20 of 200"
    assert not list(tmp_path.glob("*.checkpoint"))
    assert train(convolution(), DATA, SMOOTHING, RECIPE, epochs=10, callbacks=lambda progress: 1).step == 20


def test_tensorboard_shows_the_progress(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from vauban.training import Validation
    from vauban.training.tensorboard import TensorBoard

    validation = Validation(DATA, votes=3, times=2)
    trained = train(
        convolution(), DATA, SMOOTHING, RECIPE, epochs=10, callbacks=TensorBoard(tmp_path), validation=validation
    )
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20]
    assert events.Scalars("loss")[-1].value == pytest.approx(trained.history[-1].loss)
    assert "held out/certified" in events.Tags()["scalars"]


def test_a_model_that_fails_is_answered_with_a_sentence() -> None:
    class Fails(torch.nn.Module):
        def __init__(self, when: str) -> None:
            super().__init__()
            self.inner, self.when = convolution(), when

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.when == "always" or (self.when == "in training" and self.training):
                raise IndexError("no such layer")
            return self.inner(x)[:, : 2 if self.when == "two classes" else 3]

    with pytest.raises(
        ModelFailed, match=r"failed in a call with views of shape \(2, 1, 8, 8\).* IndexError: no such layer"
    ):
        train(Fails("always"), DATA, SMOOTHING, RECIPE)
    with pytest.raises(ModelFailed, match=r"step 1 of training failed: IndexError: no such layer.* \(30, 1, 8, 8\)"):
        train(Fails("in training"), DATA, SMOOTHING, RECIPE)
    with pytest.raises(BadInput, match=r"returned \(2, 2\) for 2 views: scores of shape \(2, 3\) are needed"):
        train(Fails("two classes"), DATA, SMOOTHING, RECIPE)


def test_certifying_with_other_views_than_trained_on_is_warned_about(tmp_path: Path) -> None:
    import warnings

    out = tmp_path / "m.safetensors"
    train("cnn-small", DATA, SMOOTHING, RECIPE, out=out)
    model = load_model(out)
    with pytest.warns(
        UserWarning, match="trained on views of gaussian:sigma=0.25, and gaussian:sigma=0.5 makes others"
    ):
        vb.SmoothedClassifier(model, "gaussian:sigma=0.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vb.SmoothedClassifier(model, "gaussian:sigma=0.25")


def test_a_smoothing_without_a_text_form_is_known_again_by_its_values(tmp_path: Path) -> None:
    import warnings

    def smoothing(slope: int) -> Smoothing:
        return vb.Concave(lambda z: min(slope * z, 1), scale=2, budget=40, levels=255)

    train("cnn-small", DATA, smoothing(8), RECIPE, out=tmp_path / "m.safetensors")
    model = load_model(tmp_path / "m.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vb.SmoothedClassifier(model, smoothing(8))
    for other in (smoothing(4), vb.Gaussian(sigma=0.25)):
        with pytest.warns(UserWarning, match=r"trained on views of concave:g=.* makes others"):
            vb.SmoothedClassifier(model, other)


def test_an_ensemble_knows_what_all_its_members_were_trained_on(tmp_path: Path) -> None:
    import warnings

    files = [tmp_path / f"{i}.safetensors" for i in range(2)]
    for seed, file in enumerate(files):
        train("cnn-small", DATA, SMOOTHING, replace(RECIPE, seed=seed), out=file)
    both = vb.ensemble([str(file) for file in files])
    with pytest.warns(UserWarning, match="trained on views of gaussian:sigma=0.25"):
        vb.SmoothedClassifier(both, "gaussian:sigma=0.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vb.SmoothedClassifier(both, SMOOTHING)


def test_an_ensemble_scales_features_as_its_members_do_and_refuses_two_ways(tmp_path: Path) -> None:
    spec = "mlp:features=2,classes=2,width=4,depth=1"
    tables = [np.array([[0.0, 1.0], [2.0, 5.0]]), np.array([[0.0, 1.0], [4.0, 7.0]])]
    entries = [vb.Standardisation.of(table).metadata() for table in tables]
    for name, said in (("a", entries[0]), ("b", entries[0]), ("c", entries[1]), ("plain", {"trained": "{}"})):
        save_model(tmp_path / f"{name}.safetensors", build_model(spec, seed=0), spec, said)
    a, b, c, plain = (str(tmp_path / f"{name}.safetensors") for name in ("a", "b", "c", "plain"))
    assert load_model(f"{a}+{b}").metadata == entries[0]
    for other in (c, plain):
        with pytest.raises(BadInput, match=r"scaled in different ways.*--standardise"):
            load_model(f"{a}+{other}")
