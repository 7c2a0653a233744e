"""ReenGAGE as a mixin for DDPG, SAC and DQN: settings, checks and the loss of the critic's gradient in the goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.losses import gradient_loss

RewardGradient = Callable[[Tensor, Tensor], Tensor]
GOAL = "desired_goal"

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

    Base = OffPolicyAlgorithm
else:
    Base = object


class ReenGAGE(Base):
    """Adds alpha |slope - target slope|^2 to the critic's loss; a slope is a gradient in the goal. Subclasses override `train()`.

    goal_weight: alpha of [Levine2023, Eq. 8.8 and 8.12]; it weighs the sum over goal coordinates, averaged over the batch: a
        weight w of the mean over d coordinates is w / d here. 0 is Stable-Baselines3's own update, to the last bit.
    rewards: "sparse" counts the gradient loss only where the reward is `low_reward` (Eq. 8.9; by default the environment's own
        `low_reward`, or -1); "dense" adds the reward's gradient to the target (Eq. 8.8).
    reward_gradient: for "dense", (achieved goals (n, k) after the step, goals (n, k)) -> gradients (n, k) in the goals; without
        it the environment's `compute_reward` is differentiated by autograd.
    normalise_goals: weigh the loss of each goal coordinate by its running variance (G.4).
    Everything else is as in Stable-Baselines3.
    """

    def __init__(
        self,
        *args: Any,
        goal_weight: float = 0.2,
        rewards: str = "sparse",
        low_reward: float | None = None,
        reward_gradient: RewardGradient | None = None,
        normalise_goals: bool = False,
        **kwargs: Any,
    ):
        if not 0 <= goal_weight < float("inf"):
            raise BadInput(f"goal_weight={goal_weight}: a finite number, zero or more, is needed")
        if rewards not in ("sparse", "dense"):
            raise BadInput(f"rewards={rewards!r}: 'sparse' or 'dense'")
        if reward_gradient is not None and rewards == "sparse":
            raise BadInput(
                "reward_gradient is given, but sparse rewards have none that is used: rewards='dense' uses it"
            )
        self.goal_weight, self.rewards, self.low_reward = float(goal_weight), rewards, low_reward
        self.reward_gradient = reward_gradient
        self.normalise_goals = normalise_goals
        self.goal_statistics: RunningMeanStd | None = None
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        space = self.observation_space
        if not isinstance(space, spaces.Dict) or not {GOAL, "achieved_goal"} <= set(space.spaces):
            raise BadInput(
                f"{type(self).__name__} needs an environment with goals: observations that are a dictionary of observation, "
                f"achieved_goal and desired_goal. This one gives {space}"
            )
        if self.policy_kwargs.get("share_features_extractor"):
            raise BadInput(
                "share_features_extractor=True trains features by the actor only and hides goals from the critic's gradient: "
                "leave it False (MultiReenGAGEDDPG shares the critic's encoder with the actor)"
            )
        super()._setup_model()
        if self.goal_weight and self.env is not None:
            self._check_rewards()
        if self.normalise_goals and self.goal_statistics is None:
            self.goal_statistics = RunningMeanStd(shape=tuple(space[GOAL].shape or ()))

    def _check_rewards(self) -> None:
        normaliser = self._vec_normalize_env
        if normaliser is not None and (normaliser.norm_reward or self.rewards == "dense"):
            raise BadInput(
                "rewards normalised by VecNormalize cannot be compared with low_reward or differentiated: "
                "use norm_reward=False, and no VecNormalize for dense rewards"
            )
        if self.rewards == "sparse":
            if self.low_reward is None:
                self.low_reward = self._environments_low_reward()
        elif self.reward_gradient is None:
            space = self.observation_space[GOAL]  # type: ignore[index]
            probe = torch.zeros(2, *space.shape, device=self.device)
            self._differentiate_reward(probe + 0.25, probe + 0.5)

    def _environments_low_reward(self) -> float:
        assert self.env is not None
        try:
            low = self.env.get_attr("low_reward", 0)[0]
        except AttributeError:
            return -1.0
        if low is None:
            raise BadInput("this environment's rewards are not sparse (it has no low_reward): use rewards='dense'")
        return float(low)

    def _reward_slopes(self, achieved: Tensor, goals: Tensor) -> Tensor:
        """The gradient of R(s', g) with respect to g, (n, k)."""
        if self.reward_gradient is None:
            return self._differentiate_reward(achieved, goals)
        slopes = self.reward_gradient(achieved, goals.detach())
        if slopes.shape != goals.shape:
            raise BadInput(f"reward_gradient gave shape {tuple(slopes.shape)} for goals of shape {tuple(goals.shape)}")
        return slopes.detach()

    def _differentiate_reward(self, achieved: Tensor, goals: Tensor) -> Tensor:
        leaf = goals.detach().clone().requires_grad_()
        assert self.env is not None
        try:
            rewards = self.env.env_method("compute_reward", achieved, leaf, [{}] * len(leaf), indices=[0])[0]
        except (TypeError, RuntimeError, AttributeError) as problem:
            raise BadInput(f"{_NOT_DIFFERENTIABLE} ({problem})") from None
        if not isinstance(rewards, Tensor) or not rewards.requires_grad:
            raise BadInput(_NOT_DIFFERENTIABLE)
        return torch.autograd.grad(rewards.sum(), leaf)[0]

    def _with_goals(self, observations: Any, goals: Tensor) -> dict[str, Tensor]:
        return {**observations, GOAL: goals}

    def _goal_leaf(self, observations: Any) -> Tensor:
        goals: Tensor = observations[GOAL].detach()
        return (goals.clone() if goals.is_floating_point() else goals.float()).requires_grad_()

    def _target_slopes(self, batch: Any, discounts: Tensor, slopes: Tensor) -> Tensor:
        """The gradient of R + gamma Q' in the goal, from that of Q'; `discounts` is gamma, or 0 at the end of an episode."""
        slopes = discounts.reshape(-1, *[1] * (slopes.dim() - 1)) * slopes
        if self.rewards == "dense":
            slopes = slopes + self._reward_slopes(batch.next_observations["achieved_goal"], batch.observations[GOAL])
        return slopes

    def _slope_loss(self, slopes: Tensor, targets: Tensor, batch: Any) -> Tensor:
        """The gradient loss of one critic over a batch."""
        counted = batch.rewards == self.low_reward if self.rewards == "sparse" else None
        return gradient_loss(slopes, targets, counted, self._goal_scale(batch))

    def _goal_scale(self, batch: Any) -> Tensor | None:
        if self.goal_statistics is None:
            return None
        return torch.as_tensor(self.goal_statistics.var, dtype=torch.float32, device=batch.rewards.device)

    def _update_goal_statistics(self, batch: Any) -> None:
        if self.goal_statistics is not None:
            self.goal_statistics.update(batch.observations[GOAL].cpu().numpy())


def minimise(loss: Tensor, parameters: list[Any], optimiser: torch.optim.Optimizer, max_norm: float = 0.0) -> None:
    """One optimiser step on `parameters`; no other gradient is computed. With `max_norm` the gradient is clipped to it."""
    for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = slope
    if max_norm:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    optimiser.step()


_NOT_DIFFERENTIABLE = (
    "the dense loss needs a reward that can be differentiated: compute_reward, given torch tensors, must return a tensor "
    "that depends on the goal. Give reward_gradient=function(achieved, goal), or use rewards='sparse'"
)
