"""Training of all seeds as one batched program: their networks, worlds and replay buffers are slices of shared tensors."""

from __future__ import annotations

from vauban.rl.batched_seeds.loop import check_batched, stack_of, train_batched

__all__ = ["check_batched", "stack_of", "train_batched"]
