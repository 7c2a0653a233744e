"""The state of a search: for each input the nearest adversarial one so far, and the steps that every search ends with."""

from __future__ import annotations

import numpy as np
import torch

from vauban.attacks.distances import distance
from vauban.attacks.targets import Target
from vauban.threats import Threat

_OUTWARD = (1.0, 1.1, 1.25, 1.5, 2.0)


class Search:
    """The nearest adversarial input found for each of x [b, ...] with `labels` [b].

    `best` [b, ...]: the input itself where none is found; `distance` [b]: infinity there; `evaluations` [b]: views so far, a
    share of those that the whole batch took. An input that is adversarial as it is has distance 0.
    """

    def __init__(self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat):
        self.target, self.x, self.labels, self.threat = target, x, labels, threat
        self.best, self.distance = x.clone(), np.full(len(x), np.inf)
        self._begun = target.views
        self.offer(x, torch.arange(len(x), device=x.device))

    @property
    def evaluations(self) -> np.ndarray:
        """Views that the search took so far, for each input [b]: a b-th of all."""
        return np.full(len(self.x), -(-(self.target.views - self._begun) // len(self.x)), dtype=np.int64)

    def found(self) -> torch.Tensor:
        """For which inputs [b] there is an adversarial one."""
        return torch.from_numpy(np.isfinite(self.distance)).to(self.x.device)

    def radii(self) -> torch.Tensor:
        """The distance of the best [b], float32 on the inputs' device; infinity where there is none."""
        return torch.from_numpy(self.distance).float().to(self.x.device)

    def offer(self, candidates: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Judge candidates [n, ...] for the inputs `rows` [n] (default: one for each input), and keep the nearest adversarial.

        Candidates are rounded to allowed inputs first. Returns which [n] are adversarial and nearer than what was known: those
        that are not nearer are not judged. Where nothing is known for any of them they are judged first, and only adversarial
        ones are measured: a distance may cost more than a judgement.
        """
        rows = torch.arange(len(self.x), device=self.x.device) if rows is None else rows
        made, own = self.target.allowed(candidates.detach()), rows.cpu().numpy()
        far = np.full(len(made), np.inf)
        better = torch.zeros(len(made), dtype=torch.bool, device=self.x.device)
        if np.isinf(self.distance[own]).all():
            if len(made):
                better = self.target.adversarial(made, self.labels[rows])
            self._measure(made, rows, better, far)
            better &= torch.from_numpy(np.isfinite(far)).to(self.x.device)
        else:
            self._measure(made, rows, ~better, far)
            nearer = torch.from_numpy(far < self.distance[own]).to(self.x.device)
            if bool(nearer.any()):
                better[nearer] = self.target.adversarial(made[nearer], self.labels[rows[nearer]])
        for i in sorted(better.nonzero()[:, 0].tolist(), key=lambda i: -far[i]):
            self.best[own[i]], self.distance[own[i]] = made[i], far[i]
        return better

    def _measure(self, made: torch.Tensor, rows: torch.Tensor, which: torch.Tensor, far: np.ndarray) -> None:
        """Write the distances of the candidates `which` [n] into `far` [n]."""
        if bool(which.any()):
            far[which.cpu().numpy()] = distance(self.x[rows[which]], made[which], self.threat)

    def reach(
        self,
        direction: torch.Tensor,
        rows: torch.Tensor | None = None,
        halvings: int = 8,
        ended: torch.Tensor | None = None,
    ) -> None:
        """Search along `direction` [n, ...] from the inputs `rows`: outward, up to twice its length, until one is adversarial,
        then by bisection. `ended` [n]: where the end of the direction itself is known to be adversarial.
        """
        rows = torch.arange(len(self.x), device=self.x.device) if rows is None else rows
        low = torch.zeros(len(rows), device=self.x.device)
        high = torch.full_like(low, torch.inf)
        if ended is not None:
            high[ended] = 1.0
        for t in _OUTWARD:
            going = (high == torch.inf).nonzero()[:, 0]
            if not len(going) or (t > 1 and self.target.exhausted):
                break
            better = self.offer(self.x[rows[going]] + t * direction[going], rows[going])
            high[going[better]] = t
            low[going[~better]] = t
        for _ in self.target.steps(halvings):
            going = (high < torch.inf).nonzero()[:, 0]
            if not len(going):
                return
            middle = (low[going] + high[going]) / 2
            better = self.offer(self.x[rows[going]] + _times(middle, direction[going]), rows[going])
            high[going] = torch.where(better, middle, high[going])
            low[going] = torch.where(better, low[going], middle)


def _times(factors: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return factors.view(-1, *[1] * (x.dim() - 1)) * x
