"""Environments by name: Vauban's own, and those of other packages and scripts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from vauban.errors import BadInput
from vauban.registry import Registry
from vauban.rl.envs.adapters import WorldEnv, WorldVectorEnv
from vauban.rl.envs.world import World


class EnvironmentRegistry(Registry[type[World]]):
    """A registry of `World` classes that also registers what is decorated here with Gymnasium."""

    group, kind = "vauban.environments", "environment"

    def register(self, name: str) -> Callable[[type[World]], type[World]]:
        """Decorator for a subclass of `World`; afterwards `gymnasium.make(name)` makes it too."""
        keep = super().register(name)

        def register_both(world: type[World]) -> type[World]:
            accepted = self.accept(world)
            register_with_gymnasium(name)
            return keep(accepted)

        return register_both

    def accept(self, thing: Any) -> type[World]:
        if not (isinstance(thing, type) and issubclass(thing, World)):
            raise BadInput(
                f"{thing!r} is no subclass of vauban.rl.envs.World; a Gymnasium environment needs gymnasium.register instead"
            )
        return thing


ENVIRONMENTS = EnvironmentRegistry()


def register_with_gymnasium(name: str) -> None:
    """Register an environment of `ENVIRONMENTS` with Gymnasium; a name Gymnasium has already is left as it is."""
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=partial(_single, name), vector_entry_point=partial(_vector, name))


def _single(name: str, render_mode: str | None = None, **settings: Any) -> WorldEnv:
    return WorldEnv(ENVIRONMENTS[name](**settings), render_mode)


def _vector(name: str, num_envs: int = 1, render_mode: str | None = None, **settings: Any) -> WorldVectorEnv:
    return WorldVectorEnv(ENVIRONMENTS[name](**settings), num_envs, render_mode)
