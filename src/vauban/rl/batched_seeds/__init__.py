"""Training of many agents as one batched program: their networks, worlds and replay buffers are slices of shared tensors."""

from __future__ import annotations

from vauban.rl.batched_seeds.loop import batch_key, check_batched, stack_of, train_batched, train_jobs_batched

__all__ = ["batch_key", "check_batched", "stack_of", "train_batched", "train_jobs_batched"]
