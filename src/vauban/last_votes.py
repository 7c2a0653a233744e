"""Votes of sampled runs of a fixed n that keep, once they are finished, their counts at n alone."""

from __future__ import annotations

from collections.abc import Sequence

from vauban.votes import Counts, SampledVotes


class LastVotes(SampledVotes):
    """As `SampledVotes`. Counts are taken at all `looks`, so that an interruption loses little; before the run is sealed
    `forget_looks` removes those at other numbers of votes than `kept`."""

    def __init__(
        self,
        index: Sequence[int],
        num_classes: int,
        looks: Sequence[int],
        kept: Sequence[int],
        truth: Sequence[int] | None = None,
        n0: int = 0,
    ):
        super().__init__(index, num_classes, lambda number: None, truth, n0)
        self._all, self._kept = list(looks), list(kept)

    def _may_follow(self, looks: list[Counts], votes: int) -> bool:
        """The next look may follow, or the next one that is kept."""
        after = int(looks[-1].sum()) if looks else 0
        return votes in [next((look for look in some if look > after), None) for some in (self._all, self._kept)]

    @property
    def rewritten(self) -> bool:
        """Whether a finished call has removed all other looks, after it found its model unchanged."""
        taken = {int(counts.sum()) for looks in self.looks for counts in looks}
        return len(self._all) > len(self._kept) and taken == set(self._kept) and all(self.looks)

    def forget_looks(self) -> bool:
        """Forget the counts at looks that a finished run does not keep; whether there were any."""
        looks = [[counts for counts in some if int(counts.sum()) in self._kept] for some in self.looks]
        fewer = sum(map(len, looks)) < sum(map(len, self.looks))
        self.looks = looks
        return fewer

    def content(self, run: str) -> bytes:
        """The file of all lines in the run with identity `run`."""
        return "".join(f"{line}\n" for line in self.lines(run)).encode()
