"""Votes: streams views of inputs through a base classifier and tallies what it says, on the device."""

from vauban.voting.voter import Voter

__all__ = ["Voter"]
