"""How a network lies in memory: the layout in which it answers fastest."""

from __future__ import annotations

import torch


def to_fast_layout(
    module: torch.nn.Module, dimensions: int, device: torch.device | str, precision: str = "fp32"
) -> bool:
    """Lay the weights of convolutions out channels-last where that is faster, and say whether: for pictures on the CPU, and on
    GPUs in every precision that tensor cores compute in (all but fp32)."""
    faster = torch.device(device).type == "cpu" or precision != "fp32"
    fast = faster and dimensions == 3 and any(isinstance(part, torch.nn.Conv2d) for part in module.modules())
    if fast:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return fast
