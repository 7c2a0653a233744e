"""Finds the model of a run by its fingerprint: the packaged one, or a file beside the run; no file's code is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vauban.errors import BadInput, VaubanError
from vauban.models.files import SPEC_KEY, LoadedModel, load, names_code
from vauban.models.registry import all_packaged, canonical
from vauban.models.weights import SAFE, read_header

if TYPE_CHECKING:
    from vauban.runs.sections import ModelSection

_OTHER = {"onnx": ".onnx", "skops": ".skops"}  # the first word of a model's text, and the ending of its file


def find(run: Path, model: ModelSection, device: str) -> tuple[Path, LoadedModel]:
    """Return the file of the model that a run's manifest names, and that model: it has the manifest's fingerprint.

    Looked through: packaged models, and files in the run's folder, the folder around it and the
    current one. Where none is the run's model, the error says what to give.
    """
    folders = list(dict.fromkeys(folder.resolve() for folder in (run, run.parent, Path())))
    for file in _candidates(model.spec, folders):
        try:
            loaded = load(file, device=device)
        except VaubanError:  # not a model that can be read here, so not one to take without being told
            continue
        if loaded.fingerprint == model.sha256:
            return file, loaded
    raise BadInput(
        f"the run is about the model {model.spec} with fingerprint {model.sha256[:12]}…, and neither a packaged model nor a file "
        f"in {run}, the folder around it or the current folder is that one: give {_to_give(model.spec)}"
    )


def _candidates(spec: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Files that may hold the model of this text; of safetensors files those whose header names it."""
    yield from all_packaged()
    ending = _OTHER.get(spec.partition(":")[0], SAFE)
    for folder in folders:
        for file in sorted(folder.glob(f"*{ending}")):
            if ending != SAFE or _is_saved_as(file, spec):
                yield file


def _is_saved_as(file: Path, spec: str) -> bool:
    try:
        said = read_header(file).get(SPEC_KEY)
        return said is not None and not names_code(said) and canonical(said) == spec
    except VaubanError:
        return False


def _to_give(spec: str) -> str:
    """The options that name a model of this text, with a place for what the manifest does not keep."""
    try:
        own = names_code(spec)
    except VaubanError:
        own = True
    if own:
        return "--model with the text by which the run was made (package.module:callable), and --weights FILE if it had one"
    return "--model with its file, or for several models joined by + or > with all their files"
