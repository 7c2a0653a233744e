"""The later members of an ensemble are asked here, about the views on which the first do not agree, and never compiled."""

from __future__ import annotations

import torch
from torch import Tensor

from vauban.models.ensembles import Ensemble, chunk_size


@torch.compiler.disable
def ask_others(ensemble: Ensemble, views: Tensor, total: Tensor, mask: Tensor) -> Tensor:
    """The answers [rows, classes], from the first members' `total` and, where `mask` says so, those of the others.

    Never compiled: a compiler would make a program of its own, with other rounding, for every number of views that are left.
    """
    answer, left = total / ensemble.consensus, mask.nonzero().flatten()
    size = chunk_size(len(views))
    for begin in range(0, len(left), size):
        chunk = left[begin : begin + size]
        rows = torch.cat([chunk, chunk[:1].expand(size - len(chunk))])
        some = ensemble.add(_rows(views, rows), ensemble.consensus, total.index_select(0, rows)) / len(ensemble.members)
        answer = answer.index_copy(0, chunk, some[: len(chunk)])
    return answer


def _rows(views: Tensor, rows: Tensor) -> Tensor:
    """Some rows of views, in the memory layout of the views."""
    some = views.index_select(0, rows)
    last = views.ndim == 4 and views.is_contiguous(memory_format=torch.channels_last)
    return some.contiguous(memory_format=torch.channels_last) if last and not views.is_contiguous() else some
