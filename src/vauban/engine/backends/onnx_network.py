"""The network of an ONNX file: its bytes, and which views it takes; the file is data for a backend, and no code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from vauban.errors import BadInput

Side = int | None
"""One side of a tensor; None if the file leaves it open."""


class OnnxNetwork(nn.Module):
    """A network that only a backend can run.

    `content`: the whole model as bytes; `sha256`: its fingerprint; `takes`: the sides of its input [rows, ...].
    """

    def __init__(self, name: str, content: bytes, sha256: str, takes: Sequence[Side]):
        super().__init__()
        self.name, self.content, self.sha256, self.takes = name, content, sha256, tuple(takes)

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Refuse: torch cannot run the file."""
        raise BadInput(
            f"{self.name} is an ONNX file, which torch does not run and through which no gradients pass: certify or predict with "
            "--backend onnxruntime or openvino, or give the torch model it was exported from"
        )

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse views [rows, ...] that the file does not take."""
        takes, rows = self.takes, self.takes[0]
        if len(takes) != len(shape) or any(side not in (None, n) for side, n in zip(takes[1:], shape[1:], strict=True)):
            raise BadInput(
                f"{self.name} takes views of shape {_text(takes[1:])}; views of these inputs have {_text(shape[1:])}: give other "
                "inputs or another smoothing, or export the network for such views"
            )
        if rows not in (None, shape[0]):
            raise BadInput(
                f"{self.name} takes exactly {rows} views at a time, and a forward pass has rows={shape[0]}: give rows={rows} "
                f"(--rows {rows}), or export the network with a dynamic first dimension"
            )


def messages(message: Any) -> Iterator[Any]:
    """A protobuf message and every message inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if hasattr(value, "append") or hasattr(value, "add") else (value,):
                yield from messages(one)


def _text(sides: Sequence[Side]) -> str:
    return "x".join("?" if side is None else str(side) for side in sides) or "one number"
