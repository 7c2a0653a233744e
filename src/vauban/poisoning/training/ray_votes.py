"""Lets groups of base classifiers vote, in this process or as jobs on a Ray cluster, with the same votes."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.engine.cluster import RayCluster, connect
from vauban.poisoning.training.deterministic import thread_count
from vauban.poisoning.training.guarded import guarded_scores
from vauban.poisoning.training.ray_jobs import RETRIES, job_needs, result_of
from vauban.poisoning.training.trainer import Trainer
from vauban.poisoning.votes.counting import VoteCounter

_PURPOSE = "voting on other machines"
_AT_LEAST = 16  # base classifiers of a job, where there are as many


class VotingGroup(Protocol):
    """Base classifiers whose weights are read when they vote."""

    @property
    def numbers(self) -> list[int]: ...

    def weights(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Voting:
    """What all groups share when they vote: the trainer, the preprocessed inputs [m, ...], and the shapes of the computation."""

    trainer: Trainer
    inputs: NDArray[Any]
    num_classes: int
    rows: int
    threads: int

    def scores(self, weights: Any) -> Iterator[tuple[int, torch.Tensor]]:
        """Scores [group, n, classes] on chunks of inputs, with the first input of each; shorter chunks are padded."""

        def score(some: Any, chunk: NDArray[Any]) -> torch.Tensor:
            rows = len(chunk)
            if rows < self.rows and isinstance(some, dict):
                chunk = np.concatenate([chunk, np.zeros((self.rows - rows, *chunk.shape[1:]), chunk.dtype)])
            with thread_count(self.threads):
                return self.trainer.scores(some, chunk)[:, :rows]

        for start in range(0, len(self.inputs), self.rows):
            yield start, guarded_scores(score, weights, self.inputs[start : start + self.rows], self.num_classes)

    def counted(self, numbers: Sequence[int], weights: Any, duels: bool, votes: bool) -> VoteCounter:
        """The votes of one group, in a counter of its own."""
        of_group = VoteCounter(
            len(self.inputs), self.num_classes, len(numbers), duels=duels, votes=votes, columns=numbers
        )
        for start, scores in self.scores(weights):
            of_group.add(numbers, scores, start)
        return of_group


def count_groups(
    cluster: RayCluster | None, voting: Voting, groups: Sequence[VotingGroup], *, duels: bool, votes: bool
) -> Iterator[VoteCounter]:
    """The votes of each group, in the order of the groups; each in a counter of its own."""
    if cluster is None:
        for group in groups:
            yield voting.counted(group.numbers, group.weights(), duels, votes)
        return
    yield from _count_on_ray(cluster, voting, groups, duels, votes)


def _count_on_ray(
    cluster: RayCluster, voting: Voting, groups: Sequence[VotingGroup], duels: bool, votes: bool
) -> Iterator[VoteCounter]:
    """Groups are counted in order, so that the votes so far are always those of the first groups, which a checkpoint keeps.

    At most two jobs a processor are submitted, each with the weights of its groups, which bounds the memory. Workers keep the
    inputs of the last voting. A job whose worker dies is done again by another; one that kills `RETRIES` + 1 stops the voting.
    """
    ray = connect(cluster, _PURPOSE)
    needs, at_once = job_needs(ray, cluster, voting.trainer)
    job = ray.remote(**needs, max_retries=RETRIES)(_vote)
    token, shared = secrets.token_hex(8), [ray.put(voting)]
    waiting, running = _bundles(groups), deque[Any]()
    try:
        while True:
            for some in islice(waiting, at_once - len(running)):
                cast = [(list(group.numbers), group.weights()) for group in some]
                running.append(job.remote(token, shared, cast, duels, votes))
            if not running:
                return
            yield from result_of(ray, running[0], "votes so far are kept in the run folder, if one was given")
            running.popleft()
    finally:
        for task in running:
            ray.cancel(task, force=True)


def _bundles(groups: Sequence[VotingGroup]) -> Iterator[list[VotingGroup]]:
    """Groups in order, so many together that they have `_AT_LEAST` base classifiers."""
    some: list[VotingGroup] = []
    for group in groups:
        some.append(group)
        if sum(len(one.numbers) for one in some) >= _AT_LEAST:
            yield some
            some = []
    if some:
        yield some


_HELD: dict[str, Voting] = {}


def _vote(
    token: str, shared: list[Any], groups: list[tuple[list[int], Any]], duels: bool, votes: bool
) -> list[VoteCounter]:
    """One job: the votes of some groups. A worker fetches the inputs once and keeps them, with what its trainer made of them."""
    if token not in _HELD:
        import ray

        _HELD.clear()
        _HELD[token] = ray.get(shared[0])
    voting = _HELD[token]
    return [voting.counted(numbers, weights, duels, votes) for numbers, weights in groups]
