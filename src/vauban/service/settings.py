"""The limits of a service, each in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    `queue`: requests in progress, above which more are answered with 429. `seconds`: the longest a request may take votes;
    `votes`: the most it may be counted. `upload`: bytes of a body, `batch_upload` of a batch's; `pixels` of a picture before it
    is scaled. `batches`: batches waiting or running, `batch_inputs`: inputs of one, `batch_bodies`: those received at a
    time. `body_seconds`: how long a body may take to
    arrive, and an answer to be taken. `kept`: runs that the folder may hold.
    """

    queue: int = 64
    seconds: float = 30.0
    votes: int = 1_000_000
    upload: int = 8 * 2**20
    batch_upload: int = 256 * 2**20
    pixels: int = 16_000_000
    batches: int = 16
    batch_inputs: int = 10_000
    batch_votes: int = 1_000_000
    batch_bodies: int = 4
    body_seconds: float = 20.0
    kept: int = 10_000
