"""Encoders of batched seeds: sets of goals without their dummies, pictures as each agent sees them, half precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.torch_layers import create_mlp
from stacks import SETS, sets, some_sets

from vauban.errors import BadInput
from vauban.rl.batched_seeds import stack_of
from vauban.rl.batched_seeds.networks.items import Items
from vauban.rl.batched_seeds.networks.picture_encoder import scene
from vauban.rl.batched_seeds.networks.set_encoder import SetEncoder
from vauban.rl.recipes import Plan


def test_goals_of_sets_are_laid_out_without_their_dummies() -> None:
    rng = np.random.default_rng(0)
    goals = some_sets(rng, agents=2, sets=5, most=6)
    items = Items.of(goals, 30)
    values = torch.as_tensor(rng.normal(size=(2, 5, 4))).float()
    weights = items.points.sum(-1, keepdim=True) * torch.ones(4)
    sums = items.sums(weights * items.per_item(values))
    for agent in range(2):
        for i in range(5):
            there = goals[agent, i, goals[agent, i, :, 2] != 0, :2].float()
            torch.testing.assert_close(sums[agent, i], values[agent, i] * there.sum(), rtol=1e-5, atol=1e-5)
            assert items.counts[agent, i] == len(there)
    assert int(items.gates.sum()) == int((goals[..., 2] != 0).sum())
    assert not items.overflow
    assert Items.of(goals, 10).overflow


def test_sums_and_products_over_sets_are_those_of_their_goals_one_by_one() -> None:
    rng = np.random.default_rng(1)
    goals = some_sets(rng, agents=2, sets=5, most=6)
    items = Items.of(goals, 30)
    x, weights = (torch.as_tensor(rng.normal(size=size)).float() for size in ((2, 30, 4), (2, 30)))
    y, slope = (torch.as_tensor(rng.normal(size=(2, 5, 4))).float() for _ in range(2))
    sums, dots, (back, total) = items.sums(x, weights), items.dots(x, y), items.backward(x, slope, weights, y)
    plain, none = items.backward(x, slope, None, None)
    for agent in range(2):
        at = 0
        for i, count in enumerate(items.counts[agent, :, 0].long().tolist()):
            mine, own = x[agent, at : at + count], weights[agent, at : at + count]
            torch.testing.assert_close(sums[agent, i], (mine * own[:, None]).sum(0))
            torch.testing.assert_close(dots[agent, at : at + count], mine @ y[agent, i])
            want = (slope[agent, i] + own[:, None] * y[agent, i]) * (mine > 0)
            torch.testing.assert_close(back[agent, at : at + count], want)
            torch.testing.assert_close(plain[agent, at : at + count], slope[agent, i] * (mine > 0))
            torch.testing.assert_close(items.total(weights)[agent, i, 0], own.sum())
            at += count
        assert not back[agent, at:].any()
        assert not dots[agent, at:].any()
    torch.testing.assert_close(total, back.sum(1, keepdim=True))
    torch.testing.assert_close(none, plain.sum(1, keepdim=True))


def test_a_batch_with_too_many_goals_is_not_passed_over_in_silence() -> None:
    stack: Any = stack_of(sets(), [0], "cpu")
    stack.capacity = 5
    for _ in range(40):
        stack.move(at_random=True)
    stack.check_errors()
    stack.update(*stack.replay.sample(12))
    with pytest.raises(BadInput, match="more goals"):
        stack.check_errors()


def test_there_is_room_for_the_goals_of_early_episodes_and_later_only_for_those_of_all() -> None:
    asked = Plan("ddpg", "DriveSeek-v0:max_goals=200", {**SETS, "batch_size": 256}, steps=16_000)
    stack: Any = stack_of(asked, [0, 1], "cpu")
    counts = (stack.goals[..., 2] != 0).sum(-1).numpy()
    for steps in (40, 400, 4_000, 12_000):
        rng, needed = np.random.default_rng(steps), 0
        for row in counts:
            for first in range(steps // 40, len(row), 9):
                needed = max(needed, rng.choice(row[:first], (30, 256)).sum(1).max())
        assert needed <= stack._capacity_after(steps) < 1.3 * needed
    assert stack.capacity == stack._capacity_after(40)
    assert stack.resize(12_000)
    assert stack.capacity == stack._capacity_after(12_000) < 0.95 * stack._capacity_after(40)
    assert not stack.resize(12_040)


def encoded(encoder: SetEncoder, items: Items, state: Any, weight: Any) -> tuple[Any, list[Any]]:
    """Sums over sets of what an encoder says, and the gradients of sum(weight * sums) in all its numbers."""
    seen = encoder.hidden(items.encoder_inputs(state, encoder.half))
    sums = items.sums(seen[-1]).requires_grad_()
    last = [parameter.requires_grad_() for parameter in encoder.last]
    pooled = encoder.pooled(sums, items.counts)
    slope, *heads = torch.autograd.grad((pooled * weight).sum(), [sums, *last])
    return pooled.detach(), [*encoder.inner_gradients(seen, *items.backward(seen[-1], slope, None, None)), *heads]


@pytest.mark.parametrize("hidden", [(40,), (40, 40), (40, 30, 20)])
def test_an_encoders_gradients_are_those_of_autograd_and_half_precision_is_near(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    items = Items.of(some_sets(rng, agents=2, sets=20, most=9), 200)
    networks = [torch.nn.Sequential(*create_mlp(8, 20, list(hidden))) for _ in range(2)]
    state, weight = torch.randn(2, 20, 6) * 10, torch.randn(2, 20, 20)
    exact, slopes = encoded(SetEncoder(networks, "cpu", half=False), items, state, weight)
    near, rough = encoded(SetEncoder(networks, "cpu", half=True), items, state, weight)
    for k, network in enumerate(networks):
        each = network(torch.cat([items.per_item(state)[k], items.points[k]], dim=-1)) * items.gates[k, :, None]
        pooled = torch.zeros(20, 20).index_add(0, items.rows[k] - 20 * k, each)
        torch.testing.assert_close(exact[k], pooled.detach(), rtol=1e-4, atol=1e-4)
        own = torch.autograd.grad((pooled * weight[k]).sum(), list(network.parameters()))
        for mine, theirs in zip(slopes, own, strict=True):
            torch.testing.assert_close(mine[k].T if theirs.ndim == 2 else mine[k, 0], theirs, rtol=1e-3, atol=1e-3)
    assert (exact - near).norm() < 0.01 * exact.norm()
    for mine, other in zip(slopes, rough, strict=True):
        assert other.dtype == torch.float32
        assert (mine - other).norm() < 0.1 * mine.norm()


def test_half_precision_keeps_positions_apart() -> None:
    goals = torch.tensor([[[[0, 0, 1]], [[0, 0, 1]]]])
    items = Items.of(goals, 2)
    one: Any = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.ReLU(), torch.nn.Linear(1, 1))
    with torch.no_grad():
        for layer, bias in ((one[0], -10), (one[2], 0)):
            layer.weight.fill_(1)
            layer.bias.fill_(bias)
    encoder = SetEncoder([one], "cpu", half=True)
    state = torch.tensor([[[10.01], [10.02]]])
    said = (
        encoder.pooled(items.sums(encoder.hidden(items.encoder_inputs(state, True))[-1]), items.counts)
        .detach()
        .flatten()
    )
    torch.testing.assert_close(said, torch.tensor([0.01, 0.02]), atol=2e-3, rtol=0.1)


def _states(rng: np.random.Generator, count: int, edge: float) -> torch.Tensor:
    """States of DriveSeek (count, 6): anywhere, on the edges and corners, and where pixels begin and end."""
    position = rng.uniform(-edge, edge, (count, 2))
    position[: count // 3] = np.round(16 * position[: count // 3]) / 16
    position[:4] = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * edge
    position[4:8] *= [[0, 1], [1, 0], [0, 1], [1, 0]]
    angle = rng.uniform(0, 2 * np.pi, count)
    moves = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    moves[8:12], position[8:12] = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)]), edge - 1
    position[9:12:2] *= -1
    return torch.as_tensor(np.concatenate([position, np.round(position), moves], axis=1), dtype=torch.float32)


@pytest.mark.usefixtures("small_encoders")
@pytest.mark.parametrize("edge", [10, 10.5])
def test_a_stack_sees_the_pictures_its_agents_see(edge: float) -> None:
    asked = sets(env=f"DriveSeek-v0:max_goals=9,edge={edge}", encoder="pictures")
    rng = np.random.default_rng(0)
    stack: Any = stack_of(asked, [0, 1], "cpu")
    drawn = stack.picture_encoder
    state = torch.stack([_states(rng, 30, drawn.edge) for _ in range(2)])
    goals = torch.as_tensor(stack.world.begin(60, rng)["goal"]).view(2, 30, 9, 3)
    cells = stack.cells(goals).requires_grad_()
    changes = torch.as_tensor(rng.normal(size=cells.shape), dtype=torch.float32)
    features, jvp = stack.encoder(scene(drawn, state, cells))
    (slopes,) = torch.autograd.grad(features.sum(), cells, retain_graph=True)
    for k, agent in enumerate(stack.agents):
        encoder = agent.critic.features_extractor
        seen = {"observation": state[k], "desired_goal": goals[k].float().requires_grad_()}
        picture = encoder.picture(seen)
        assert picture.amax(dim=(0, 2, 3)).tolist() == [1, 1, 1]
        own = encoder.net(picture)
        torch.testing.assert_close(features[k], own)
        (by_gate,) = torch.autograd.grad(own.sum(), seen["desired_goal"])
        place = goals[k, ..., :2].long() + drawn.REACH
        there = slopes[k].flatten(1).gather(1, place[..., 1] * drawn.cells + place[..., 0])
        torch.testing.assert_close(2 * goals[k, ..., 2] * there, by_gate[..., 2])

        def moved(red: torch.Tensor, encoder: Any = encoder, picture: torch.Tensor = picture.detach()) -> torch.Tensor:
            return encoder.net(torch.cat([red, picture[:, 1:]], dim=1))

        spread = changes[k].repeat_interleave(8, 1).repeat_interleave(8, 2)
        middle = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0]).repeat(drawn.cells)
        step = (spread * middle[:, None] * middle)[:, None]
        _, theirs = torch.func.jvp(moved, (picture.detach()[:, :1],), (step,))
        torch.testing.assert_close(jvp(changes)[k], theirs)


@pytest.mark.usefixtures("small_encoders")
def test_half_precision_sees_the_same_pictures_nearly() -> None:
    rng = np.random.default_rng(1)
    exact, near = (stack_of(replace(sets(encoder="pictures"), precision=p), [0, 1], "cpu") for p in ("fp32", "bf16"))
    state = torch.stack([_states(rng, 20, 10.0) for _ in range(2)])
    said = []
    for stack in (exact, near):
        cells = stack.cells(some_sets(np.random.default_rng(2), 2, 20, 9))  # type: ignore[attr-defined]
        features, jvp = stack.encoder(scene(stack.picture_encoder, state, cells))  # type: ignore[attr-defined]
        said.append((features, jvp(cells)))
    for one, other in zip(*said, strict=True):
        assert 0 < (one - other).norm() < 0.1 * one.norm()  # where gates are near zero some open or close
