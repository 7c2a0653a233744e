"""Base classifiers trained side by side: each as if it were trained alone, and a function of its own partition only."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from vauban.bench.poison import measure
from vauban.data import load
from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.training.deterministic import deterministic, run_jobs
from vauban.poisoning.training.stacked import group_data, stacked_trainer
from vauban.poisoning.training.stacked.group_data import GroupData
from vauban.poisoning.training.stacked.stacked_networks import initial_weights, network
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer, schedule

Parts = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
SMALL = StackedTrainer(steps=6, views=2, batch=8, group=4)
FRESH = replace(SMALL, views=0, normalise="partition", mixup=1.0, augment="shift", front="upright", mirror=True)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    data = load("mnist:split=train").select(every=80, limit=240)
    assert data.labels is not None
    return data.images, data.labels


@pytest.fixture(scope="module")
def parts(digits: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> Parts:
    x, y = digits
    return [(x[places], y[places]) for places in Partition(10).members(x, y)]


def colour(count: int) -> Parts:
    rng = np.random.default_rng(0)
    return [(rng.integers(0, 256, (9, 3, 16, 16), dtype=np.uint8), rng.integers(0, 3, 9)) for _ in range(count)]


def fingerprints(trainer: StackedTrainer, parts: Sequence[Any], numbers: Sequence[int]) -> dict[int, str]:
    """A hash of every base classifier's weights, by its number."""
    made = {}
    for done, weights in trainer.fit(parts, numbers):
        for i, number in enumerate(done):
            content = b"".join(value[i].numpy().tobytes() for value in weights.values())
            made[number] = hashlib.sha256(content).hexdigest()
    return made


def changed(before: Mapping[int, str], after: Mapping[int, str]) -> list[int]:
    return [number for number in before if before[number] != after[number]]


class Alone(nn.Module):
    """The network `tiny-cnn` written with torch's own layers; it flattens with channels last, as the stacked one does."""

    def __init__(self, weights: Mapping[str, torch.Tensor], which: int):
        super().__init__()
        own = {name: value[which].detach().clone() for name, value in weights.items()}
        self.conv1, self.conv2 = nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)
        self.fc1, self.fc2 = nn.Linear(512, 64), nn.Linear(64, 10)
        for name in ("conv1", "conv2", "fc1", "fc2"):
            layer, weight = getattr(self, name), own[f"{name}.weight"]
            weight = weight.view(3, 3, -1, weight.shape[1]).permute(3, 2, 0, 1) if name.startswith("conv") else weight.T
            layer.weight.data.copy_(weight)
            layer.bias.data.copy_(own[f"{name}.bias"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.fc2(self.fc1(x.permute(0, 2, 3, 1).flatten(1)).relu())


def test_training_side_by_side_is_training_alone(parts: Parts) -> None:
    trainer = replace(SMALL, steps=5)
    group = GroupData(trainer, 0, dict(enumerate(parts[:4])))
    first = initial_weights(network("tiny-cnn").weights(group.shape, 10), group.initial_uniforms)
    [(numbers, weights)] = trainer.fit(parts[:4], range(4))
    assert numbers == [0, 1, 2, 3]
    for which in range(4):
        net = Alone(first, which)
        decayed = [p for name, p in net.named_parameters() if name.endswith("weight")]
        others = [p for name, p in net.named_parameters() if name.endswith("bias")]
        optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0}]
        )
        for step in range(5):
            for settings in optimizer.param_groups:
                settings["lr"] = trainer.lr * schedule(step / 5)
            x, y, _, _ = group.batch(step)
            scores = net(x[which].permute(0, 3, 1, 2))
            optimizer.zero_grad()
            functional.cross_entropy(scores, y[which], label_smoothing=0.1).backward()
            optimizer.step()
        for name, trained in Alone(weights, which).named_parameters():
            torch.testing.assert_close(net.get_parameter(name), trained, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(
            net(group.batch(0)[0][which].permute(0, 3, 1, 2)),
            trainer.forward(weights, group.batch(0)[0])[which],
            rtol=1e-3,
            atol=1e-3,
        )


@pytest.mark.parametrize("trainer", [SMALL, FRESH], ids=["views made beforehand", "fresh views"])
def test_one_poisoned_sample_changes_one_base_classifier(trainer: StackedTrainer, parts: Parts) -> None:
    clean = fingerprints(trainer, parts, range(10))
    x, y = parts[6]
    poisoned = {
        "relabelled": (x, np.where(np.arange(len(y)) == 3, (y + 1) % 10, y)),
        "removed": (x[1:], y[1:]),
        "added": (np.concatenate([x, 255 - x[:1]]), np.append(y, 0)),
        "many added": (np.concatenate([x, *[255 - x] * 3]), np.tile(y, 4)),
        "all removed but one": (x[:1], y[:1]),
    }
    for what, part in poisoned.items():
        after = fingerprints(trainer, [*parts[:6], part, *parts[7:]], range(10))
        assert changed(clean, after) == [6], what


def test_one_poisoned_sample_changes_one_residual_network() -> None:
    trainer = StackedTrainer.recipe((3, 16, 16), 3, steps=3, batch=9, group=2)
    parts = colour(4)
    clean = fingerprints(trainer, parts, range(4))
    parts[2][1][:] = (parts[2][1] + 1) % 3
    assert changed(clean, fingerprints(trainer, parts, range(4))) == [2]


def test_the_order_of_the_training_data_changes_nothing(digits: Any, parts: Parts) -> None:
    x, y = digits
    order = np.random.default_rng(1).permutation(len(x))
    shuffled = [(x[order][places], y[order][places]) for places in Partition(10).members(x[order], y[order])]
    assert fingerprints(SMALL, shuffled, range(10)) == fingerprints(SMALL, parts, range(10))


@pytest.mark.parametrize("trainer", [SMALL, FRESH], ids=["views made beforehand", "fresh views"])
def test_how_many_are_trained_together_changes_nothing(trainer: StackedTrainer, parts: Parts) -> None:
    whole = fingerprints(trainer, parts, range(10))
    for numbers in ([5], [9, 0], [7, 3, 4], [2, 6, 8, 1]):
        some = fingerprints(trainer, [parts[i] for i in numbers], numbers)
        assert some == {i: whole[i] for i in numbers}


def test_the_number_of_threads_changes_nothing(parts: Parts) -> None:
    threads = torch.get_num_threads()
    seen = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            seen.append(fingerprints(SMALL, parts, range(10)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert seen[0] == seen[1]


def test_a_leak_between_neighbours_would_be_found(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: batches that depend on the largest partition of the group change its neighbours."""
    batch = GroupData.batch

    def leaking(self: GroupData, step: int) -> Any:
        x, *rest = batch(self, step)
        return x * (1 + self.counts.max() / 1000), *rest

    clean = fingerprints(SMALL, parts, range(10))
    monkeypatch.setattr(GroupData, "batch", leaking)
    before = fingerprints(SMALL, parts, range(10))
    large = (np.concatenate([parts[6][0]] * 4), np.tile(parts[6][1], 4))
    after = fingerprints(SMALL, [*parts[:6], large, *parts[7:]], range(10))
    assert before != clean
    assert changed(before, after) == [4, 5, 6, 7]


def test_scores_do_not_depend_on_the_company(parts: Parts, digits: Any) -> None:
    x = digits[0]
    [(_, weights)] = SMALL.fit(parts[:4], range(4))
    whole = SMALL.scores(weights, x)
    assert whole.shape == (4, 240, 10)
    assert whole.dtype == torch.float32
    part = SMALL.scores({name: value[:2] for name, value in weights.items()}, x[:100])
    assert torch.equal(part, whole[:2, :100])
    assert torch.equal(replace(SMALL).scores(weights, x), whole)
    with pytest.raises(BadInput, match="groups of 2"):
        replace(SMALL, group=2).scores(weights, x)


def test_a_mirrored_picture_scores_the_same(parts: Parts, digits: Any) -> None:
    x = digits[0][:20]
    trainer = replace(SMALL, mirror=True, front="none", augment="none")
    [(_, weights)] = trainer.fit(parts[:4], range(4))
    torch.testing.assert_close(trainer.scores(weights, x), trainer.scores(weights, x[..., ::-1]))
    assert not torch.allclose(replace(trainer, mirror=False).scores(weights, x), trainer.scores(weights, x))


def test_batches_hold_own_samples_evenly(parts: Parts) -> None:
    group = GroupData(replace(SMALL, front="none", augment="none", views=1), 1, {2: parts[6]})
    own = torch.from_numpy(parts[6][0]).float().div(255).permute(0, 2, 3, 1)
    seen = np.zeros(len(own), dtype=int)
    for step in range(300):
        x, y, _, _ = group.batch(step)
        distance = (x[2].flatten(1)[:, None] - own.flatten(1)).abs().sum(dim=2)
        rows = distance.argmin(dim=1)
        assert float(distance.min(dim=1).values.max()) == 0
        assert torch.equal(y[2], torch.from_numpy(parts[6][1])[rows])
        seen += np.bincount(rows, minlength=len(own))
    expected = 300 * SMALL.batch / len(own)
    assert np.abs(seen / expected - 1).max() < 0.35


def test_seeds_of_partitions_and_shared_ones(parts: Parts) -> None:
    same = [parts[0]] * 3
    assert len(set(fingerprints(SMALL, same, range(3)).values())) == 3
    assert len(set(fingerprints(replace(SMALL, seeds="shared"), same, range(3)).values())) == 1
    assert fingerprints(replace(SMALL, seed=1), same, range(3)) != fingerprints(SMALL, same, range(3))


def test_normalisation_is_by_own_samples(parts: Parts) -> None:
    trainer = replace(SMALL, front="none", augment="none", views=1, normalise="partition")
    [(_, weights)] = trainer.fit(parts[:4], range(4))
    for i, (x, _) in enumerate(parts[:4]):
        values = x.astype(np.float64) / 255
        assert weights["input.mean"][i].item() == pytest.approx(values.mean(), rel=1e-4)
        assert weights["input.scale"][i].item() == pytest.approx(1 / (values.std() + 0.05), rel=1e-4)


def test_the_shipped_recipe_learns_digits() -> None:
    train, test = load("mnist:split=train"), load("mnist:split=test").select(every=50)
    assert train.labels is not None
    assert test.labels is not None
    places = Partition(1_200).members(train.images, train.labels)[:5]
    trainer = StackedTrainer.recipe((1, 28, 28), 10, steps=60, group=5)
    told: list[int] = []
    parts = [(train.images[p], train.labels[p]) for p in places]
    [(_, weights)] = trainer.fit(parts, range(5), told.append)
    right = trainer.scores(weights, test.images).argmax(dim=2).numpy() == test.labels
    assert right.mean() > 0.8
    assert sum(told) == 5


def test_inputs_without_sides_are_learned_too() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    x = (rng.normal(size=(60, 5)) + 3 * y[:, None]).astype(np.float32)
    trainer = StackedTrainer.recipe((5,), 2, group=2, steps=40)
    [(_, weights)] = trainer.fit([(x[:30], y[:30]), (x[30:], y[30:])], range(2))
    assert (trainer.scores(weights, x).argmax(dim=2).numpy() == y).mean() > 0.9


def test_a_trainer_is_rebuilt_from_its_spec() -> None:
    assert StackedTrainer.from_spec(SMALL.spec) == SMALL
    assert all(isinstance(value, (str, int, float, bool)) for value in SMALL.spec.values())
    assert StackedTrainer.recipe((3, 32, 32), 10).network == "residual"
    assert StackedTrainer.recipe((1, 28, 28), 10, "cuda").precision == "bfloat16"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "tiny-cn"}, "did you mean 'tiny-cnn'"),
        ({"front": "hog"}, "front end"),
        ({"augment": "flip"}, "augmentation"),
        ({"steps": 0}, "steps=0"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"seeds": "own"}, "way to seed"),
        ({"normalise": "all"}, "way to normalise"),
        ({"precision": "half"}, "precision"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace(SMALL, **change)


def test_bad_partitions_are_refused(parts: Parts) -> None:
    with pytest.raises(BadInput, match="one number of its own"):
        next(iter(SMALL.fit(parts[:2], [1, 1])))
    with pytest.raises(BadInput, match="slot 0: label .* outside the classes 0..9"):
        next(iter(SMALL.fit([(parts[0][0], parts[0][1] + 10)], [0])))
    with pytest.raises(BadInput, match=r"labels of shape \(3,\)"):
        next(iter(SMALL.fit([(parts[0][0], parts[0][1][:3])], [0])))
    with pytest.raises(BadInput, match="colour pictures"):
        next(iter(replace(SMALL, network="residual").fit(parts[:1], [0])))


def test_cublas_is_set_up_to_repeat_its_bits_before_torch_looks() -> None:
    """torch looks once, at the first matrix product on a GPU, which may be one of another training in the same process."""
    said = "import os, sys, vauban; print(os.environ['CUBLAS_WORKSPACE_CONFIG'], 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == [":4096:8", "False"]


def test_settings_of_torch_are_put_back() -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    with deterministic():
        assert torch.are_deterministic_algorithms_enabled()

    def fail(stop: Event) -> None:
        raise RuntimeError("no")

    def wait(stop: Event) -> bool:
        return stop.wait(300)

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="no"):
            run_jobs([fail, wait], "cpu")
    finally:
        torch.set_num_threads(threads)
    assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()) == before


INTERRUPTED = """
import os, signal
from itertools import count

import numpy as np

from vauban.poisoning.training.stacked.group_data import GroupData
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer

steps, batch, calls, taken = 1_000_000, GroupData.batch, count(), []

def interrupting(group, step):
    taken.append(step)
    if next(calls) == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return batch(group, step)

GroupData.batch = interrupting
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
rng = np.random.default_rng(0)
parts = [(rng.integers(0, 256, (24, 1, 28, 28), dtype=np.uint8), rng.integers(0, 10, 24)) for _ in range(10)]
try:
    list(StackedTrainer(steps=steps, views=2, batch=8, group=4).fit(parts, range(10)))
except KeyboardInterrupt:
    print("stopped", max(taken) < steps - 1)
"""


@pytest.mark.slow
def test_an_interruption_stops_training() -> None:
    """A signal reaches the main thread while others train; these stop at their next step, long before the last. In a process of
    its own, so that the signal ends nothing else."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert done.stdout == "stopped True\n", done.stderr


def test_the_bench_compares_the_same_training(digits: Any) -> None:
    result = measure(*digits, 8, in_loop=1, trained=3, steps=4)
    assert result["trained"] == 3
    assert set(result["seconds_each"]) == {"together", "loop", "prepared"}
    assert result["loop_to_together"] > 0
    with pytest.raises(BadInput, match="one after another"):
        measure(*digits, 8, in_loop=9)


def test_rows_are_few_enough_for_several_passes(parts: Parts) -> None:
    """The tests above make partitions of one and of several passes; otherwise they would prove less."""
    sizes = [len(y) for _, y in parts]
    assert min(sizes) <= group_data._ROWS < 4 * max(sizes)
    assert max(sizes) > group_data._ROWS
    assert stacked_trainer._SCORED_ROWS < 240
