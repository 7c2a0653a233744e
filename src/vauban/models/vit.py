"""Vision transformers (Dosovitskiy et al. 2021): patches as tokens, attention by scaled_dot_product_attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vauban.errors import BadInput


class Attention(nn.Module):
    """Attention of every token to all tokens of the same view, in `heads` heads."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and two dense layers, each after a normalisation of a token by itself, and each added to its input."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Scores [batch, classes] of square pictures [batch, channels, size, size], from the mean of all tokens."""

    def __init__(self, patch: int, width: int, depth: int, heads: int, channels: int, classes: int, size: int):
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def vit(channels: int, classes: int, size: int, patch: int, width: int, depth: int, heads: int) -> nn.Module:
    """Return a vision transformer; the size of pictures must be a multiple of the patch's, and the width one of the heads."""
    if size % patch or width % heads:
        raise BadInput(
            f"vit with size={size}, patch={patch}, width={width}, heads={heads}: patches must fill the picture and heads the "
            "width, so give a patch that divides the size and heads that divide the width"
        )
    return VisionTransformer(patch, width, depth, heads, channels, classes, size)
