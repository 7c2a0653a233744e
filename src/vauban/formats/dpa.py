"""The evaluations of DPA: scores of every base classifier, saved by torch; and Vauban's votes file. [Levine2023]

`evaluations/NAME.pth` is {'labels': int [m], 'scores': float [m, models, classes]}: true labels, and what each base classifier
gives each class; it votes for the largest.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vauban.errors import BadInput
from vauban.files import replace_file
from vauban.formats.results import Results

if TYPE_CHECKING:
    from vauban.poisoning.votes.poisoning_run import PoisoningRun


def recognises(path: Path) -> bool:
    """Whether a file has the ending of one that torch saved."""
    return path.is_file() and path.suffix in (".pth", ".pt")


def read(path: Path) -> Results:
    """Read the votes of an evaluation; of equal scores the smaller class has the vote."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        labels, scores = content["labels"].long(), content["scores"]
    except Exception as problem:
        raise BadInput(
            f"{path} is no evaluation of DPA ({type(problem).__name__}): a dictionary of tensors labels [inputs] and scores "
            "[inputs, models, classes] is needed"
        ) from None
    if scores.dim() != 3 or labels.shape != scores.shape[:1] or not scores.numel() or not scores.isfinite().all():
        raise BadInput(
            f"{path}: scores {list(scores.shape)} with labels {list(labels.shape)}; finite scores [inputs, models, classes] and "
            "one label per input are needed"
        )
    best = scores.amax(dim=2, keepdim=True)
    ballots = (scores == best).long().argmax(dim=2)
    tied = int(((scores == best).sum(dim=2) > 1).sum())
    classes = scores.shape[2]
    counts = torch.zeros(len(labels), classes, dtype=torch.long).scatter_add_(1, ballots, torch.ones_like(ballots))
    notes = (f"{tied} votes between equal scores are for the smaller class; DPA leaves them to torch",) if tied else ()
    return Results(
        index=np.arange(len(labels)), truth=labels.numpy(), counts=counts.numpy(), ballots=ballots.numpy(), notes=notes
    )


def write(path: Path, results: Results) -> tuple[str, ...]:
    """Write an evaluation whose scores are 1 for a vote and 0 for the rest; notes say what it does not keep.

    Where only counts are kept, base classifiers are listed by the class they vote for: certificates of DPA need no more. Votes of
    base classifiers that share training samples are refused: an evaluation cannot say so, and DPA's certificates are for others.
    """
    import torch

    if results.run is not None and results.run.votes.spread > 1:
        raise BadInput(
            f"each sample is in {results.run.votes.spread} base classifiers of this run, and DPA's certificates are for one: "
            "write a votes file (--to votes)"
        )
    counts, notes = results.needed("counts"), ["scores are 1 for the class of a vote and 0 for the others"]
    models = counts.sum(axis=1)
    if (models != models[0]).any():
        raise BadInput("inputs have different numbers of votes, and an evaluation of DPA has one per base classifier")
    ballots = results.ballots
    if ballots is None:
        ballots = np.stack([np.repeat(np.arange(counts.shape[1]), row) for row in counts])
        notes.append("which base classifier cast which vote is not kept: votes are listed by class")
    if results.run is not None:
        notes += _another_aggregate(results.run, "an evaluation has no place for that")
    if results.run is not None and results.run.votes.against == "labels":
        notes.append(
            "these votes prove something about flipped labels alone (SS-DPA), which an evaluation does not say"
        )
    scores = torch.nn.functional.one_hot(torch.from_numpy(ballots), counts.shape[1]).float()
    packed = io.BytesIO()
    torch.save({"labels": torch.from_numpy(results.needed("truth")).int(), "scores": scores}, packed)
    replace_file(path, packed.getvalue())
    return tuple(notes)


def write_votes(path: Path, results: Results) -> tuple[str, ...]:
    """Write a votes file that `vauban claim` and `vauban poison import` read.

    That of a run says how its votes were cast; of other votes spread and threat are to be said there.
    """
    if (run := results.run) is not None:
        from vauban.poisoning.votes.votes_file import VotesFile, write_votes_file

        manifest = run.manifest
        file = VotesFile(run.votes, results.truth, results.index, manifest.partition, manifest.training)
        write_votes_file(path, file, manifest.settings.aggregate)
        return _another_aggregate(run, f"vauban claim {path} --smoothing partition:aggregate=runoff,…")
    ballots = results.ballots
    arrays: dict[str, Any] = {"counts": results.needed("counts")} if ballots is None else {"votes": ballots}
    arrays |= {} if results.truth is None else {"labels": results.truth}
    packed = io.BytesIO()
    np.savez_compressed(packed, num_classes=results.num_classes, index=results.index, **arrays)
    replace_file(path, packed.getvalue())
    return (
        f"the file does not say how the base classifiers were trained: vauban claim {path} --smoothing "
        "partition:spread=1,threat=samples if no two share training samples and each sample's base classifier depends on its "
        "input alone; threat=labels if samples were dealt out by sorting or features were learned from all inputs",
    )


def _another_aggregate(run: PoisoningRun, advice: str) -> tuple[str, ...]:
    """A note where a run counts its votes otherwise than by plurality, which a reader of the file takes them for."""
    aggregate = run.manifest.settings.aggregate
    said = f"the run's claims are by {aggregate}, and the file is read by plurality: {advice}"
    return () if aggregate == "plurality" else (said,)
