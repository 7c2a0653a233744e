"""torch.compile for the work of one shape: noise, network and vote as one program where that is possible."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from vauban.engine.backends.protocol import installed
from vauban.engine.network import votes_of
from vauban.seed import Seed
from vauban.smoothing.random import Stream, addressed_words, addresses, round_keys

if TYPE_CHECKING:
    from vauban.engine.enumerator import Enumerator
    from vauban.engine.sampler import Sampler

Program = Callable[..., Any]

PLAIN = 2**31  # numbers of views made on a GPU before it is worth compiling how they are made
_LARGE = 2**16  # numbers of a picture from which on its noise is written by a kernel of its own
_SMALL = 2**22  # up to this many numbers in a shape, launching kernels one by one dominates the time


TUNED = "tuned"
_TUNING: dict[str, Any] = {"max_autotune": True}


def compiled(function: Program, small: bool = False, how: bool | str = True) -> Program:
    """The function compiled for fixed shapes; `small`: replayed as a CUDA graph.

    `how` "tuned": the fastest kernel for each convolution is found by timing first.
    """
    if how == TUNED:
        return torch.compile(function, dynamic=False, options={**_TUNING, "triton.cudagraphs": small})
    return torch.compile(function, dynamic=False, mode="reduce-overhead" if small else None)


def traced(sampler: Sampler, pictures: torch.Tensor) -> Callable[..., torch.Tensor]:
    """The function from pictures [blocks, ...], addresses and keys to views, as tensor operations only.

    It is traced after one view has been made: tables are on the device by then, so the compiler does not trace their
    construction.
    """
    per_view = sampler.smoothing.words(pictures.shape[1:], sampler.levels)

    def views(some: torch.Tensor, at: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return sampler.views(some, addressed_words(keys, at, sampler.block_size, per_view))

    device, seed = sampler.device, Seed.of(0)
    at = addresses([Stream(seed, "probe", 0)] * sampler.blocks, [0] * sampler.blocks).to(device)
    with torch.inference_mode():
        there, keys = pictures.to(device), round_keys(seed, device)
        sampler.smoothing.views(there[:1], addressed_words(keys, at[:1], 1, per_view), sampler.levels)
        return make_fx(views)(there, at, keys)


def fused(sampler: Sampler, pictures: torch.Tensor) -> Program:
    """One program from pictures [blocks, ...], addresses and keys to (votes, scores)."""
    if sampler.network.runner is not None:
        return _by_runner(sampler, pictures)
    if _written_apart(sampler, pictures):
        from vauban.engine.fusing.noise import WrittenViews

        made = WrittenViews(sampler, pictures.shape[1:])
        votes = compiled(sampler.votes_and_scores, how=sampler.compiled)
        return lambda *arguments: votes(made(*arguments))
    views = traced(sampler, pictures)

    def votes_and_scores(some: torch.Tensor, at: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return sampler.votes_and_scores(views(some, at, keys))

    small = sampler.device.type == "cuda" and sampler.rows * pictures[0].numel() <= _SMALL
    program = compiled(votes_and_scores, small, sampler.compiled)
    if not small:
        return program

    def replayed(*arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch.compiler.cudagraph_mark_step_begin()
        return program(*arguments)

    return replayed


def _written_apart(sampler: Sampler, pictures: torch.Tensor) -> bool:
    """Whether a kernel of its own writes views: for packed noise on large pictures it is faster than what the compiler makes."""
    large = pictures.dim() == 4 and pictures[0].numel() >= _LARGE and sampler.device.type == "cuda"
    noise = sampler.smoothing.packed(sampler.levels) if large and sampler.levels is not None else None
    return noise is not None and installed("triton")


def _by_runner(sampler: Sampler, pictures: torch.Tensor) -> Program:
    """The program of a network whose runner writes the noise itself."""
    assert sampler.levels is not None
    view = tuple(sampler.smoothing.view_shape(pictures.shape[1:]))
    scores = sampler.network.runner.direct(sampler.smoothing, sampler.levels, sampler.rows, sampler.block_size, view)

    def votes_and_scores(*arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = scores(*arguments)
        return votes_of(found).int(), found

    return votes_and_scores


def noise(sampler: Sampler, pictures: torch.Tensor) -> Program | None:
    """The program from pictures, addresses and keys to views; None where it cannot be compiled. Only for noise in whole numbers:
    it then makes the same bits as the uncompiled one, so the manifest does not mention it."""
    if sampler.levels is None or not sampler.smoothing.law.on_grid:
        return None
    try:
        program = compiled(traced(sampler, pictures))
        at = addresses([Stream(Seed.of(0), "probe", 0)] * sampler.blocks, [0] * sampler.blocks).to(sampler.device)
        with torch.inference_mode():
            program(pictures.to(sampler.device), at, round_keys(Seed.of(0), sampler.device))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception:
        return None
    return program


def exact_views(enumerator: Enumerator, first: Sequence[torch.Tensor]) -> Program | None:
    """The program of `enumerator.views_of` for arguments of the shapes of `first`; None where it cannot be compiled or does not
    make the same views, bit for bit and in the same layout. The manifest therefore does not mention it.

    It is compared on `first` and on mirrored inputs with other words: a smoothing that computes outside torch is traced as a
    constant, which is right for `first` alone. As in `traced`, tables are on the device before it is traced.
    """

    def views(some: torch.Tensor, place: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return enumerator.views_of(some, place, words)

    some, place, words = first
    with torch.inference_mode():
        others = some.flip(-1), place.flip(0), (words + 1) % enumerator.views
        wanted = [views(*arguments) for arguments in (first, others)]
        try:
            program = compiled(make_fx(views)(*first))
            found = [program(*arguments) for arguments in (first, others)]
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            return None
    pairs = zip(found, wanted, strict=True)
    return program if all(a.stride() == b.stride() and torch.equal(a, b) for a, b in pairs) else None


def warn_not_compiled(problem: Exception) -> None:
    """Warn that votes are cast without compilation, and why."""
    reason = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
    warnings.warn(f"torch.compile failed ({reason.strip()[:200]}): votes are cast without it", stacklevel=2)
