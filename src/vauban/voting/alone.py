"""Whether a base classifier judges every view by itself, in whatever row and next to whatever others it stands."""

from __future__ import annotations

from collections.abc import Callable

import torch

from vauban.errors import BadInput


def judged_alone(
    ask: Callable[[torch.Tensor], torch.Tensor],
    units: int,
    *,
    why: str,
    advice: str,
    check: Callable[[torch.Tensor], None] = lambda scores: None,
) -> None:
    """Ask for one shape of `units` equal parts, and then for the same parts again, in other places and next to others.

    `ask` takes which part stands in each place, int64 [units], and answers scores [rows, classes]. `why`: what needs a base
    classifier that judges alone; `advice`: what to do where scores depend on the place. `check` may refuse the first answer.
    """
    there = torch.arange(units)

    def scores(order: torch.Tensor) -> torch.Tensor:
        answer = ask(order)
        return answer.clone().view(units, -1, answer.shape[1])

    first = scores(there)
    check(first.flatten(0, 1))
    if not torch.equal(first, scores(there)):
        raise BadInput(f"the model gave two answers to the same views: {why} one that does not change")
    for kept, other in ((0, 0), (1, units - 1)):
        neighbours = torch.where(there % 2 == kept, there, other)  # one part over and over next to those that stay
        if not torch.equal(first[kept::2], scores(neighbours)[kept::2]):
            raise BadInput(
                f"the model's answer to a view depends on the other views of the batch: {why} one that judges each by itself "
                "(is a normalisation layer still training?)"
            )
    if not torch.equal(first, scores(there.roll(1)).roll(-1, 0)):
        raise BadInput(advice)
