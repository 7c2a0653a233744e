"""The two loops that attacks share: steps along gradients up to the first success, and random proposals kept where they help."""

from __future__ import annotations

from collections.abc import Callable

import torch

from vauban.attacks.search import Search

Point = Callable[[torch.Tensor], torch.Tensor]
Move = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]
Proposal = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


def walk(search: Search, rows: torch.Tensor, steps: int, point: Point, move: Move) -> None:
    """Steps for walkers [n], of which each searches for the input `rows` [n], until that input has an adversarial one.

    `which` [m] are the walkers that still go on: `point(which)` gives the inputs [m, ...] at which gradients of the loss are
    taken, and `move(step, which, gradients)` the inputs [m, ...] that are judged after the step.
    """
    which = torch.arange(len(rows), device=rows.device)
    for step in search.target.steps(steps):
        which = which[~search.found()[rows[which]]]
        if not len(which):
            return
        slope = search.target.loss_gradient(point(which), search.labels[rows[which]])
        search.offer(move(step, which, slope), rows[which])


def climb(search: Search, steps: int, going: Callable[[], torch.Tensor], proposed: Proposal, halvings: int = 0) -> None:
    """Random search from the best inputs so far, without gradients.

    In each step `proposed(step, rows, held)` gives other inputs for those in work, `going()` [m], from what is held for them
    [m, ...]; they are held from then on where the margin rises. Those with a margin as asked for are judged by hard labels, and
    brought nearer by `halvings` bisections; where labels refuse, a larger margin is asked for.
    """
    x, target = search.x, search.target
    held, most = search.best.clone(), torch.full((len(x),), -torch.inf, device=x.device)
    asked = torch.zeros_like(most)
    for step in target.steps(steps):
        rows = going()
        if not len(rows):
            return
        tried = proposed(step, rows, held[rows])
        with torch.no_grad():
            margin = target.margin(tried, search.labels[rows]).to(most.dtype)
        kept = margin > most[rows]
        held[rows[kept]], most[rows[kept]] = tried[kept], margin[kept]
        ready = (most > asked).nonzero()[:, 0]
        if not len(ready):
            continue
        better = search.offer(held[ready], ready)
        new, refused = ready[better], ready[~better]
        if halvings and len(new):
            search.reach(held[new] - x[new], new, halvings, torch.ones_like(better[better]))
        asked[refused] = (1.5 * most[refused]).clamp(min=0.02)
        held[new], most[new] = search.best[new], -torch.inf
