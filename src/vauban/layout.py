"""How a network lies in memory: the layout in which it answers fastest."""

from __future__ import annotations

import torch


def to_fast_layout(module: torch.nn.Module, dimensions: int, device: torch.device | str) -> bool:
    """Lay the weights of convolutions out channels-last where that is faster (pictures on the CPU), and say whether."""
    on_cpu = torch.device(device).type == "cpu"
    fast = on_cpu and dimensions == 3 and any(isinstance(part, torch.nn.Conv2d) for part in module.modules())
    if fast:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return fast
