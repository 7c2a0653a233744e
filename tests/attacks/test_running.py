"""vb.attack: honest certificates raise no alarm, false ones do, and folders resume, refuse and reproduce."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from linear_worlds import SMALL, half_space, linear_world

import vauban as vb
from vauban.attacks import running
from vauban.attacks.base import Attack, Found
from vauban.attacks.passes import in_16_bits
from vauban.attacks.results import Attacked, InputResult, inside
from vauban.errors import BadInput, Lie, RunRefused
from vauban.laws import law
from vauban.report.attack_tables import headers, rows
from vauban.threats import L0, L2


def test_a_tight_certificate_has_a_small_gap_and_no_alarm() -> None:
    smoothed, x, y = half_space()
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    found = vb.attack(smoothed, x, y, certificates=certs, attacks="minimal:steps=30", **SMALL)
    assert not found.alarms
    assert not found.inside.any()
    assert np.isfinite(found.distance).all()
    assert 0 < found.median_gap < 0.5 * 0.25
    radii = np.linspace(0, 1, 11)
    assert all(found.certified_accuracy(r) <= found.accuracy_under_attack(r) for r in radii)


def test_a_radius_too_large_raises_an_alarm_that_can_be_seen_again(tmp_path: Path) -> None:
    smoothed, x, y = half_space()
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    false = replace(certs, radius=1.5 * certs.radius)
    found = vb.attack(smoothed, x, y, certificates=false, attacks="minimal:steps=30", out=tmp_path / "a", **SMALL)
    assert found.alarms
    assert f"at alpha = 0.001 each, at most {len(x) * 0.001:.3g} false ones are expected" in found.notes[-1]
    said = json.loads((tmp_path / "a/alarm/alarm.json").read_text())
    with np.load(tmp_path / "a/alarm/adversarial.npz") as kept:
        distance = np.linalg.norm((kept["images"] - kept["originals"]).reshape(len(kept["images"]), -1), axis=1)
        assert (distance < kept["radius"]).all()
        words = said["command"].split()
        settings = {"n": int(words[words.index("-n") + 1]), "seed": int(words[words.index("--seed") + 1])}
        again = smoothed.predict(kept["images"], alpha=1e-6, progress=False, **settings)
        assert np.array_equal(again.counts, said["counts"])
        assert all(a is not None and a[0] != label for a, label in zip(again, kept["labels"], strict=True))


@dataclass(frozen=True)
class OtherBits(Attack):
    """Changes one pixel, and every other number by the last bit, as a division on a GPU does."""

    name: ClassVar[str] = "other-bits"
    threats: ClassVar[tuple[str, ...]] = ("l0", "patch")
    gradient: ClassVar[bool] = False

    def attack(self, target: Any, x: torch.Tensor, labels: torch.Tensor, threat: Any, generator: Any) -> Found:
        moved = torch.nextafter(x, torch.ones(()))
        moved[:, :, 0, 0] = 1 - x[:, :, 0, 0].round()
        assert (moved != x).all()
        return Found(moved, np.full(len(x), 64.0), np.ones(len(x), dtype=np.int64))


@pytest.mark.parametrize("threat", ["l0", "patch"])
def test_distances_are_those_of_the_pictures_that_the_classifier_is_given(threat: str) -> None:
    x = np.random.default_rng(3).integers(1, 255, (3, 1, 8, 8), dtype=np.uint8)
    corner = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    with torch.no_grad():
        corner[1].weight.zero_()
        corner[1].weight[1, 0] = 1.0
        corner[1].bias.copy_(torch.tensor([0.5, 0.0]))
    found = vb.attack(corner, x, threat=threat, num_classes=2, attacks=OtherBits(), progress=False)
    assert found.distance.tolist() == [1.0] * 3


def test_abstentions_raise_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    smoothed, x, y = half_space()
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    false = replace(certs, radius=1.5 * certs.radius)

    def abstain(self: Any, x: torch.Tensor, seed: int, alpha: float = 1e-6) -> tuple[np.ndarray, np.ndarray]:
        return np.full((len(x), 1), -1), np.zeros((len(x), 2), dtype=np.int64)

    monkeypatch.setattr("vauban.attacks.targets.SmoothedTarget.confirm", abstain)
    found = vb.attack(smoothed, x, y, certificates=false, attacks="minimal:steps=20", **SMALL)
    assert not found.alarms
    assert np.isinf(found.distance).all()
    assert found.summary([0.0])["only_abstentions"] == len(x)


@pytest.mark.parametrize(
    ("smoothing", "threat"),
    [
        ("gaussian:sigma=0.25", "linf"),
        ("splitting:sigma=0.2", None),
        *(
            pytest.param(smoothing, None, marks=pytest.mark.slow)
            for smoothing in ("gaussian:sigma=0.25", "uniform:sigma=0.3", "ablation:retained=6,null=mean")
        ),
    ],
)
def test_honest_certificates_raise_no_alarm(smoothing: str, threat: str | None) -> None:
    torch.manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    with torch.no_grad():
        network[1].weight.mul_(8)
        network[1].bias -= network(torch.rand(200, 1, 4, 4)).mean(dim=0)
    x = torch.randint(256, (5, 1, 4, 4), dtype=torch.uint8).numpy()
    smoothed = vb.SmoothedClassifier(network, smoothing, num_classes=3)
    sampled = {} if smoothed.smoothing.law.exact else {"n": 1_000, "seed": 1, "n0": 50}
    certs = smoothed.certify(x, progress=False, **sampled)
    found = vb.attack(smoothed, x, certificates=certs, threat=threat, budget=150_000, **SMALL)
    assert found.threat.name == (threat or certs.threat.name)
    assert np.isfinite(found.distance).any()
    assert not found.alarms
    assert (found.distance >= np.nan_to_num(found.radius, nan=0.0)).all()


def test_an_interrupted_attack_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smoothed, x, y = half_space()
    options = SMALL | {"attacks": "minimal:steps=10", "together": 2}
    whole = vb.attack(smoothed, x, y, **options)
    original, calls = running._attacked, []

    def stopped(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(running, "_attacked", stopped)
    with pytest.raises(KeyboardInterrupt):
        vb.attack(smoothed, x, y, out=tmp_path, **options)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
    calls.clear()
    calls.append(())  # the next call is the second, and so on
    monkeypatch.setattr(running, "_attacked", original)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"input": 3, "dist')  # a kill tears a line
    resumed = vb.attack(smoothed, x, y, out=tmp_path, **options)
    assert np.array_equal(resumed.distance, whole.distance)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == len(x)
    with np.load(tmp_path / "adversarial.npz") as kept:
        assert np.array_equal(kept["distance"], whole.distance[np.isfinite(whole.distance)])
    with pytest.raises(RunRefused, match="other settings.*attacks"):
        vb.attack(smoothed, x, y, out=tmp_path, **(options | {"attacks": "pgd"}))


def test_a_refused_attack_leaves_nothing_behind(tmp_path: Path) -> None:
    smoothed, x, y = half_space()
    with pytest.raises(BadInput, match="patch"):
        vb.attack(smoothed, x, y, out=tmp_path / "deep" / "a", **(SMALL | {"attacks": "patch"}))
    assert not list(tmp_path.iterdir())


def test_an_altered_adversarial_input_is_refused(tmp_path: Path) -> None:
    smoothed, x, y = half_space()
    options = SMALL | {"attacks": "minimal:steps=10", "limit": 1, "out": tmp_path}
    vb.attack(smoothed, x, y, **options)
    line = json.loads((tmp_path / "results.jsonl").read_text())
    (tmp_path / "results.jsonl").write_text(json.dumps(line | {"sha256": "0" * 64}) + "\n")
    with pytest.raises(Lie, match="sha256 differs"):
        vb.attack(smoothed, x, y, **options)


def test_a_spent_budget_stops_the_attacks_that_are_left_and_says_so(tmp_path: Path) -> None:
    smoothed, x, y = half_space()
    some = ["minimal:steps=30", "pgd:steps=30", "minimal:steps=20", "pgd:steps=20"]
    one = vb.attack(smoothed, x, y, attacks=some[:1], budget=1, **SMALL)
    for _ in range(2):  # the second call reads what the first one kept
        found = vb.attack(smoothed, x, y, attacks=some, budget=1, out=tmp_path / "a", **SMALL)
        assert found.summary([])["views"] == one.summary([])["views"]
        assert found.summary([])["cut_short"] == len(x)
        assert any(f"the budget stopped the search on {len(x)} of {len(x)} inputs" in note for note in found.notes)


def test_abstentions_that_count_are_named() -> None:
    found = [InputResult(0, 1.0, np.zeros(1), "a", ()), InputResult(1, 2.0, np.zeros(1), "a", (3,))]
    made = replace(results(1.0, 2.0), results=tuple(found))
    lines = [row[0] for row in rows(made, made.summary([]))]
    assert "inputs with a confirmed other answer or abstention" in lines
    assert "of these abstentions" in lines


def test_a_spent_budget_leaves_inputs_out_and_says_so() -> None:
    smoothed, x, y = half_space()
    found = vb.attack(smoothed, x, y, attacks="minimal:steps=10", budget=3, together=2, **SMALL)
    assert found.attacked.tolist() == [True, True, False, False]
    assert "2 of 4 inputs" in found.notes[0]
    assert "(2, 3)" in found.notes[0]
    assert found.summary([0.0])["left_out"] == [2, 3]
    assert headers(found)[-1] == "under attack (2 of 4 attacked)"
    assert "under attack (2 of 4 attacked)" in [text.get_text() for text in found.plot().axes[0].get_legend().texts]


def results(*distances: float | None) -> Attacked:
    """An attack on inputs of class 0 with these distances, None where the budget left one out."""
    found = tuple(None if far is None else InputResult(i, far) for i, far in enumerate(distances))
    m = len(found)
    return Attacked(
        index=np.arange(m),
        label=np.zeros(m, dtype=np.int64),
        truth=np.zeros(m, dtype=np.int64),
        radius=np.full(m, np.nan),
        results=found,
        originals=np.zeros((m, 1)),
        threat=L2,
        k=1,
    )


def test_an_input_that_is_wrong_without_any_change_is_lost_at_every_radius() -> None:
    found = results(0.0, *[0.5] * 10, np.inf)
    assert found.accuracy_under_attack(0.0) == 11 / 12
    assert found.accuracy_under_attack(0.5) == 11 / 12  # the ball is open
    assert found.accuracy_under_attack(0.6) == 1 / 12
    assert rows(found, found.summary([0.0]))[0] == ["at radius 0", "91.67 %"]
    assert found.plot().axes[0].lines[0].get_ydata()[0] == pytest.approx(100 * 11 / 12)


def test_inputs_that_were_not_attacked_do_not_count_as_withstanding() -> None:
    found = results(0.2, 0.4, *[None] * 6)
    assert [found.accuracy_under_attack(r) for r in (0.0, 0.3, 0.5)] == [1.0, 0.5, 0.0]
    none = results(None, None)
    assert np.isnan(none.accuracy_under_attack(0.0))
    assert none.summary([0.0])["curve"][0]["under_attack"] is None
    assert rows(none, none.summary([0.0]))[0] == ["at radius 0", "none"]


def test_a_whole_budget_attacks_inputs_to_the_end_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smoothed, x, y = half_space()
    attacked = running._attacked
    options: dict[str, Any] = SMALL | {"attacks": "minimal:steps=10", "together": 1}
    full = vb.attack(smoothed, x, y, **options)
    cost = [result.views for result in full.results if result is not None]
    short = vb.attack(smoothed, x, y, budget=cost[0] // 2, whole=True, out=tmp_path / "a", **options)
    assert not short.attacked.any()
    enough = sum(cost[:2]) + max(cost[:2]) // 2  # for two of them and not for a third
    some = vb.attack(smoothed, x, y, budget=enough, whole=True, out=tmp_path / "a", **options)
    assert some.attacked.tolist() == [True, True, False, False]
    rest = vb.attack(smoothed, x, y, budget=10 * sum(cost), whole=True, out=tmp_path / "a", **options)
    assert np.array_equal(rest.distance, full.distance)
    sizes: list[int] = []
    monkeypatch.setattr(
        running, "_attacked", lambda work, chunk, *rest: sizes.append(len(chunk)) or attacked(work, chunk, *rest)
    )
    vb.attack(smoothed, x, y, budget=10 * sum(cost), whole=True, **options | {"together": 4})
    assert sizes == [1, 2, 1]
    sizes.clear()
    vb.attack(smoothed, x, y, budget=10 * sum(cost), whole=3, **options | {"together": 4})
    assert sizes == [3, 1]
    with pytest.raises(BadInput, match="whole"):
        vb.attack(smoothed, x, y, whole=-1, **options)


@dataclass(frozen=True)
class FourCalls(Attack):
    """Judges all inputs as they are, once in each of four steps, and finds nothing."""

    name: ClassVar[str] = "four-calls"
    threats: ClassVar[tuple[str, ...]] = ("l2",)
    gradient: ClassVar[bool] = False

    def attack(self, target: Any, x: torch.Tensor, labels: torch.Tensor, threat: Any, generator: Any) -> Found:
        for _ in target.steps(4):
            target.hard(x)
        return Found(x, np.full(len(x), np.inf), np.full(len(x), 4, dtype=np.int64))


@pytest.mark.parametrize(
    ("budget", "attacked"),
    [
        (16, 4),  # a round of two inputs takes eight views
        (15, 4),  # the last step of the second round begins with one view left, and takes two
        (14, 2),  # the last step of the second round does not begin
        (7, 2),  # the last step of the first round begins with one view left
        (6, 0),  # the last step of the first round does not begin
    ],
)
def test_a_whole_budget_drops_a_round_only_if_it_stopped_an_attack(
    budget: int, attacked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = linear_world(6, inputs=4, seed=7)
    monkeypatch.setattr("vauban.attacks.budgets.Meter.fitting", lambda self, count: count)  # no round is held back
    options = SMALL | {"num_classes": 2, "threat": "l2", "together": 2, "whole": 2, "budget": budget}
    found = vb.attack(world.model, world.x.numpy(), world.labels.numpy(), attacks=FourCalls(), **options)
    assert found.attacked.tolist() == [i < attacked for i in range(4)]


def test_fresh_votes_beyond_a_whole_budget_do_not_drop_a_round() -> None:
    smoothed, x, y = half_space()
    options: dict[str, Any] = SMALL | {"attacks": "minimal:steps=10", "together": 4}
    full = vb.attack(smoothed, x, y, **options)
    budget = sum(result.views for result in full.results if result is not None) - SMALL["confirm_votes"] // 2
    found = vb.attack(smoothed, x, y, budget=budget, whole=4, **options)
    assert found.attacked.all()
    assert np.array_equal(found.distance, full.distance)


def test_an_undefended_classifier_needs_a_threat() -> None:
    world = linear_world(6)
    x, y = world.x.numpy(), world.labels.numpy()
    with pytest.raises(BadInput, match="give threat="):
        vb.attack(world.model, x, y, num_classes=2, **SMALL)
    found = vb.attack(world.model, x, y, num_classes=2, threat="l0", attacks="saliency", **SMALL)
    assert np.array_equal(found.distance, world.nearest("l0").numpy())
    assert found.certs is None


@pytest.mark.parametrize("budget", ["0", 0, "0s", "fast", "-5min"])
def test_a_budget_of_nothing_is_refused(budget: Any) -> None:
    smoothed, x, y = half_space()
    with pytest.raises(BadInput, match="60s"):
        vb.attack(smoothed, x, y, budget=budget, **SMALL)


def test_a_run_is_attacked_with_its_own_model_only(tmp_path: Path) -> None:
    world = linear_world(6, seed=7, inputs=4)
    x, y = world.x.numpy(), world.labels.numpy()
    smoothed = vb.SmoothedClassifier(world.model, "gaussian:sigma=0.25", num_classes=2)
    smoothed.certify(x, y, n=500, seed=1, out=tmp_path / "run", progress=False)
    found = vb.attack(tmp_path / "run", x, y, model=world.model, attacks="minimal:steps=10", limit=2, **SMALL)
    assert len(found) == 2
    assert not found.alarms
    with pytest.raises(BadInput, match="model= and data="):
        vb.attack(tmp_path / "run", **SMALL)
    with pytest.raises(Lie, match="fingerprint"):
        vb.attack(tmp_path / "run", x, y, model=torch.nn.Linear(6, 2), **SMALL)
    with pytest.raises(Lie, match="sha256"):
        vb.attack(tmp_path / "run", 0.5 * x, y, model=world.model, **SMALL)


def test_what_is_inside_depends_on_the_ball() -> None:
    distance, radius = np.array([1.0, 1.0, 2.0, 0.0]), np.array([1.0, 1.5, 1.5, np.nan])
    assert inside(distance, radius, L2).tolist() == [False, True, False, False]
    assert inside(distance, radius, L0).tolist() == [True, True, False, False]


def test_an_alarm_rings_at_the_edge_of_a_ball_in_steps_of_the_grid() -> None:
    """Exact splitting claims a closed ball: an attack of just as many steps, measured in float32, is inside, one of a step more
    is not."""
    closed = law("splitting:sigma=1").threat
    radius = np.array([66 / 255] * 3)
    distance = np.array([float(np.float32(66 / 255)) * (1 + 1e-7), 67 / 255, 65 / 255])
    assert inside(distance, radius, closed, edge=True).tolist() == [True, False, True]
    assert inside(distance, radius, closed).tolist() == [False, False, True]


class Viewing(torch.nn.Module):
    """Works in the plain layout alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(144, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).view(len(x), -1))


def test_a_search_on_a_gpu_follows_the_model_in_the_precision_and_layout_in_which_it_works() -> None:
    """Tried without a GPU: the device only says whether."""
    flat = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    view, gpu = torch.Size((3, 8, 8)), torch.device("cuda")
    for model, last in ((flat, True), (Viewing(), False)):
        made = in_16_bits(model, "bf16", view, gpu)
        weight = next(made.parameters())
        assert weight.dtype == torch.bfloat16
        assert weight.is_contiguous(memory_format=torch.channels_last) is last
        assert made(torch.rand(5, *view, dtype=torch.bfloat16)).shape == (5, 2)
    assert next(in_16_bits(torch.nn.Linear(3, 2), "fp32", torch.Size((3,)), gpu).parameters()).dtype == torch.float32
