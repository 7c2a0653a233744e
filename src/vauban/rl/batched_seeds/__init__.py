"""Many seeds as one batched program: networks, worlds and replay of all of them are slices of the same tensors."""

from __future__ import annotations

from vauban.rl.batched_seeds.loop import check_batched, stack_of, train_batched

__all__ = ["check_batched", "stack_of", "train_batched"]
