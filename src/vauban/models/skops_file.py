"""Classifiers of scikit-learn from skops files: data of known types, where a pickle would be code."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vauban.engine.adapters.estimators import Estimator
from vauban.engine.backends.protocol import imported
from vauban.engine.failed_calls import reason
from vauban.errors import BadInput
from vauban.models.composition import composed
from vauban.models.files import FileModel
from vauban.specs import Parameter, Spec, read_params

SUFFIX = ".skops"

_OPTIONS = {
    "method": Parameter(str, example="predict_proba"),
    "trust": Parameter(lambda text: tuple(text.split("/")), example="package.Type/package.Other"),
}


def is_skops(text: str) -> bool:
    """Whether a model is given as `pipeline.skops` or `pipeline.skops:method=…,trust=…`."""
    path, _ = _parts(text)
    return path.endswith(SUFFIX) and (Path(path).expanduser().is_file() or composed(text) is None)


def load_skops(text: str) -> FileModel:
    """The classifier of `pipeline.skops`; `method=` is the method that gives its scores, `trust=` names types that skops does
    not trust by itself, joined by /.

    No code of the file is executed; types that are neither scikit-learn's, NumPy's nor trusted are refused. The fingerprint is
    the sha256 of the file and, if given, of the method.
    """
    name, options = _parts(text)
    path = Path(name).expanduser()
    if not path.is_file():
        raise BadInput(f"{name} is not a file: give the path of a classifier that skops.io.dump wrote")
    wanted = read_params(Spec.parse(f"skops:{options}" if options else "skops"), _OPTIONS)
    content, method = path.read_bytes(), wanted["method"]
    trusted = wanted["trust"] or ()
    found = read(path, content, trusted, lambda names: f"{path}:trust={'/'.join((*trusted, *names))}")
    module = Estimator(found, method)
    sha256 = hashlib.sha256(content + (f"\n{method}".encode() if method else b"")).hexdigest()
    features = getattr(module.estimator, "n_features_in_", None)
    sides = {"classes": str(module.num_classes)} | ({} if features is None else {"features": str(features)})
    return FileModel(module.eval(), str(Spec("skops", sides)), sha256, module.num_classes)


def _parts(text: str) -> tuple[str, str]:
    before, found, options = text.strip().partition(f"{SUFFIX}:")
    return (before + SUFFIX, options) if found else (text.strip(), "")


def read(path: Path, content: bytes, trusted: tuple[str, ...], trusting: Callable[[list[str]], str]) -> Any:
    """The object in a skops file; one with types that neither skops nor `trusted` trusts is refused.

    `trusting`: what to write in order to trust types of these names.
    """
    skops = imported("skops.io", "sklearn", f"reading {path}")
    try:
        unknown = [name for name in skops.get_untrusted_types(data=content) if name not in trusted]
        if not unknown:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = skops.loads(content, trusted=list(trusted))
    except Exception as problem:
        raise BadInput(
            f"{path} is not a file that skops reads ({reason(problem)}): write it with skops.io.dump(model, path)"
        ) from None
    if unknown:
        raise BadInput(
            f"{path} holds {', '.join(unknown)}, which skops does not trust by itself: a file made to harm could misuse it. If "
            f"you know where the file comes from, give {trusting(unknown)}"
        )
    for one in said:
        warnings.warn(f"{path}: {_first_line(one.message)}", stacklevel=4)
    return found


def _first_line(message: Warning | str) -> str:
    """The first line of a warning."""
    return str(message).strip().partition("\n")[0]
