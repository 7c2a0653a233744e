"""In which arithmetic a base classifier answers; the certificate speaks of exactly that one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vauban.errors import BadInput
from vauban.specs import choose
from vauban.voting.scores import Model

PRECISIONS = {"fp32": "float32", "tf32": "tf32", "bf16": "bfloat16", "fp16": "float16"}
"""Each with the name a manifest has for it."""

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check_precision(precision: str, device: torch.device) -> str:
    """The precision, refused where there is none of that name or where the device has no such arithmetic."""
    choose("precision", precision, PRECISIONS)
    if precision == "tf32" and device.type != "cuda":
        raise BadInput(f"precision tf32 is an arithmetic of NVIDIA GPUs, not of {device.type}: ask for fp32 or bf16")
    return precision


def dtype_of(precision: str) -> torch.dtype:
    """The type in which views reach the network."""
    return _DTYPES.get(precision, torch.float32)


def cast(model: Model, precision: str) -> Model:
    """The model with weights and buffers in this precision: itself in fp32 and tf32, else a copy, if it is a module."""
    if precision not in _DTYPES or not isinstance(model, torch.nn.Module):
        return model
    return copy.deepcopy(model).to(_DTYPES[precision])


@contextmanager
def in_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Let matrix products and convolutions on a GPU use TF32 with "tf32", and nowhere else."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    fast = precision == "tf32"
    try:
        torch.set_float32_matmul_precision("high" if fast else "highest")
        torch.backends.cudnn.allow_tf32 = fast
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
