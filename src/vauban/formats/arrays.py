"""Folders of .npy files: those of rs4a [Yang2020], and those of DSSN, its variant with exact splitting noise [Levine2023].

Both hold, for m inputs and c classes, `preds.npy` [m, c], `labels.npy` [m] (true labels, as floats) and `radius_l1.npy` [m].

rs4a: `preds` are shares of the votes that predict, which are others than those that certify; the largest is the certified
label. `prob_lb` [m] is its lower bound, `radius_l2` and `radius_linf` [m] are radii in other norms, `preds_nll` [m] a loss. A
radius below 0, or NaN, certifies nothing.

DSSN: `preds` are shares of the votes of all views, so that they and the number of views give the counts; `predicted_labels` [m];
`time` and `time_per` are one number each. It has no `prob_lb`.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.files import replace_file
from vauban.formats.results import Floats, Ints, Results
from vauban.laws.exact import ExactLaw

NORMS = ("l1", "l2", "linf")
NOTHING = -1.0
"""The radius that is written where nothing is certified: below every radius that the tools ask for."""
_SAME = 1e-6  # how far a derived radius may be from a stated one, which is rounded to float32
_NEAR = 1e-3  # how far a share times the number of views may be from a whole number


def is_rs4a(path: Path) -> bool:
    """Whether a folder holds arrays of rs4a."""
    return (path / "preds.npy").is_file() and not is_dssn(path)


def is_dssn(path: Path) -> bool:
    """Whether a folder holds arrays of DSSN."""
    return (path / "preds.npy").is_file() and (path / "predicted_labels.npy").is_file()


def read_rs4a(path: Path, threat: str | None = None) -> Results:
    """Read a folder of rs4a; `threat`: the norm whose radii are taken, needed where there are several."""
    shares = _shares(path)
    there = [norm for norm in NORMS if (path / f"radius_{norm}.npy").is_file()]
    if threat is None and len(there) != 1:
        raise BadInput(f"{path} has radii in {', '.join(there) or 'no norm'}: say which are meant, --threat l2")
    norm = threat or there[0]
    if norm not in there:
        raise BadInput(f"{path} has no radius_{norm}.npy: it has radii in {', '.join(there) or 'no norm'}")
    radius = _array(path, f"radius_{norm}", len(shares)).astype(np.float64)
    radius = np.where(radius >= 0, radius, np.nan)
    lower = _array(path, "prob_lb", len(shares)).astype(np.float64) if (path / "prob_lb.npy").is_file() else None
    return Results(
        index=np.arange(len(shares)),
        label=np.where(np.isnan(radius), -1, shares.argmax(axis=1)),
        radius=radius,
        threat=norm,
        truth=_labels(path, "labels", len(shares)),
        shares=shares,
        p_lower=lower,
        notes=("the radii are as rs4a computed them, in float32 and rounded to nearest",),
    )


def write_rs4a(path: Path, results: Results) -> None:
    """Write a folder of rs4a with the radii of one norm; `prob_lb` only if it is known."""
    radius, shares = _written_radius(results), _written_shares(results)
    threat = results.needed("threat")
    if threat not in NORMS:
        raise BadInput(
            f"the radii are {threat}, and rs4a has files for l1, l2 and linf: convert them first (vauban claim --threat)"
        )
    if ((shares.argmax(axis=1) != results.needed("label")) & (radius >= 0)).any():
        raise BadInput(
            "a radius is about another label than the one with most votes, which rs4a cannot say: use --to cohen"
        )
    arrays = {"preds": shares, "labels": results.needed("truth").astype(np.float64), f"radius_{threat}": radius}
    _write(path, arrays | ({} if results.p_lower is None else {"prob_lb": results.p_lower}))


def read_dssn(path: Path, law: ExactLaw | None = None) -> Results:
    """Read a folder of DSSN; `law`: that of its views, whose number gives the counts."""
    shares = _shares(path)
    label = _labels(path, "predicted_labels", len(shares))
    radius = _array(path, "radius_l1", len(shares)).astype(np.float64)
    radius = np.where(radius >= 0, radius, np.nan)
    counts = None if law is None else _counts(path, shares, law)
    if counts is not None and law is not None:
        _refuse_other_radii(path, law, law.radius_of_counts(counts, label, 1), radius)
    return Results(
        index=np.arange(len(shares)),
        label=label,
        radius=radius,
        threat="l1",
        truth=_labels(path, "labels", len(shares)) if (path / "labels.npy").is_file() else None,
        counts=counts,
        shares=shares,
        notes=(
            "the radii are as DSSN computed them; with --smoothing the counts are read too, from which radii can be derived",
        ),
    )


def write_dssn(path: Path, results: Results) -> None:
    """Write a folder of DSSN from results in l1 with the counts of all views."""
    if results.needed("threat") != "l1":
        raise BadInput(
            f"the radii are {results.threat}, and DSSN's are l1: only runs with exact splitting can be written so"
        )
    shares = _written_shares(results)
    arrays = {
        "preds": shares,
        "predicted_labels": shares.argmax(axis=1).astype(np.float64),
        "labels": results.needed("truth").astype(np.float64),
        "radius_l1": _written_radius(results),
        "time": np.array(0.0),
        "time_per": np.array(0.0),
    }
    _write(path, arrays)


def _written_radius(results: Results) -> Floats:
    return np.where(results.abstained, NOTHING, results.needed("radius"))


def _written_shares(results: Results) -> Floats:
    """Shares of votes; those that were read, or from counts."""
    if results.shares is not None:
        return results.shares
    counts = results.needed("counts")
    return np.asarray(counts / counts.sum(axis=1, keepdims=True), dtype=np.float64)


def _counts(path: Path, shares: Floats, law: ExactLaw) -> Ints:
    exact = shares * law.views
    counts = np.rint(exact).astype(np.int64)
    off = np.abs(exact - counts).max(axis=1) > _NEAR
    off |= counts.sum(axis=1) != law.views
    if off.any():
        raise BadInput(
            f"{path}: the shares of input {int(off.argmax())} are not those of {law.views} votes, one for each view of "
            f"{law.spec}: give the sigma of the run (--smoothing splitting:sigma=…)"
        )
    return counts


def _refuse_other_radii(path: Path, law: ExactLaw, derived: Floats, stated: Floats) -> None:
    """Refuse counts from which other radii follow than the folder states: a multiple of its number of views also fits shares."""
    other = ~(np.isnan(stated) | (np.abs(derived - stated) < _SAME))
    if other.any():
        first = int(other.argmax())
        raise BadInput(
            f"{path}: from {law.views} votes, one for each view of {law.spec}, the radius of input {first} is "
            f"{derived[first]:.6g}, and the folder states {stated[first]:.6g}: give the sigma of its run"
        )


def _shares(path: Path) -> Floats:
    shares = _array(path, "preds", None)
    if (
        shares.ndim != 2
        or shares.shape[1] < 2
        or not (shares >= 0).all()
        or np.abs(shares.sum(axis=1) - 1).max() > 1e-4
    ):
        raise BadInput(f"{path / 'preds.npy'}: shares of votes [inputs, classes] that add up to 1 are needed")
    return np.asarray(shares, dtype=np.float64)


def _labels(path: Path, name: str, inputs: int) -> Ints:
    values = _array(path, name, inputs)
    if not (values == np.rint(values)).all() or values.min() < 0:
        raise BadInput(f"{path / name}.npy: whole numbers from 0 are needed")
    return values.astype(np.int64)


def _array(path: Path, name: str, inputs: int | None) -> NDArray[np.floating]:
    file = path / f"{name}.npy"
    try:
        found: NDArray[np.floating] = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"{path} has no {name}.npy, which this layout needs") from None
    except (ValueError, EOFError, OSError) as problem:
        raise BadInput(f"{file} cannot be read ({problem}): an array of numbers is needed, no objects") from None
    if found.dtype.kind not in "fiu" or not found.size or (inputs is not None and found.shape != (inputs,)):
        wanted = "" if inputs is None else f" [{inputs}]"
        raise BadInput(f"{file} is {found.dtype} {found.shape}: numbers{wanted} are needed")
    return found


def _write(path: Path, arrays: dict[str, NDArray[np.float64]]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        packed = io.BytesIO()
        np.save(packed, array)
        replace_file(path / f"{name}.npy", packed.getvalue())
