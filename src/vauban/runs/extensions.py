"""Extensions of a finished run to more votes: which are allowed, and what stays valid until one is sealed; imports no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vauban.errors import BadInput, RunRefused
from vauban.files import read_json, refuse_packed
from vauban.methods import FixedMethod, Method
from vauban.runs.store import SEAL, RunRecord, claims_file, extensions_of
from vauban.validation import check_at_least_one
from vauban.votes import SampledVotes


def extend_method(method: Method, ns: list[int]) -> Method:
    """The method with extensions to these numbers of votes, each more than the one before.

    Only doublings of n: looks that are fixed before the first vote, whoever decides later which of them to take. The claims
    at n and at its first j doublings then err with probability at most (j + 1) alpha together. For an N chosen freely after
    looking there is no such bound: the N that suits the counts best would be taken.
    """
    if not isinstance(method, FixedMethod):
        raise BadInput(
            f"only a fixed number of votes can be extended, and this run is {method.name}: start another one with --out"
        )
    most = max([method.settings.n or 0, *method.extensions])
    for n in ns:
        if n <= most:
            raise BadInput(f"extend={n}: the run already has {most:,} votes per input; give a larger number")
        doublings, rest = divmod(n, method.settings.n or 0)
        if rest or doublings & (doublings - 1):
            raise BadInput(
                f"extend={n} with n={method.settings.n}: a number chosen after looking proves nothing at this alpha; only n "
                f"times 2, 4, 8, … are fixed beforehand: {2 * most:,} is the next"
            )
        most = n
    return replace(method, extensions=(*method.extensions, *ns))


def extended_method(folder: Path, record: RunRecord, n: int) -> Method | None:
    """The method of the run in a folder with an extension to n votes, None if it has that; one to which none can be added now is
    refused."""
    check_at_least_one("extend", n, "the number of votes per input to extend the run to is needed")
    if n in extensions_of(record.method):
        return None
    extended = extend_method(record.method, [n])
    if not record.method.finished(record.votes):
        raise RunRefused(f"{folder} is not finished: finish it with the same command first, then extend it")
    refuse_packed(folder / record.votes.file)
    return extended


def closed_record(folder: Path, record: RunRecord) -> RunRecord:
    """What the seal in the folder closes: `record`, or, while its last extension is not sealed, the record before it.

    Votes of an extension are appended beside a seal that stays, so that an interruption leaves the earlier claims as they were.
    """
    extensions = extensions_of(record.method)
    if not extensions or not (folder / SEAL).exists() or claims_file(extensions[-1]) in read_json(folder / SEAL):
        return record
    method, votes = record.method, record.votes
    assert isinstance(method, FixedMethod)
    assert isinstance(votes, SampledVotes)
    before = replace(method, extensions=extensions[:-1])
    first = before.empty_votes(votes.index, votes.truth)
    most = before.looks[-1]
    first.chosen, first.looks = votes.chosen, [[c for c in looks if int(c.sum()) <= most] for looks in votes.looks]
    return replace(record, method=before, votes=first)
