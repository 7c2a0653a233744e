"""Certifies a real table that scikit-learn carries: 569 biopsies with 30 measured features, benign or malignant.

    python examples/table.py [FOLDER]

writes the table as CSV, trains a dense network on its training rows, certifies the rows for tests, and verifies the run
against the table. Needs scikit-learn; takes under a minute on two cores.
"""

import csv
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import vauban as vb
from vauban.data import load
from vauban.models import load as load_model
from vauban.runs.verify import verify_run


def main(folder: Path) -> None:
    """Write the table, train, certify and verify in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "breast_cancer.csv"
    found = load_breast_cancer()
    with table.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*found.feature_names, "diagnosis"])
        writer.writerows(
            [*row, found.target_names[label]] for row, label in zip(found.data.tolist(), found.target, strict=True)
        )

    train, test = (load(f"table:path={table},label=diagnosis,split={split}") for split in ("train", "test"))
    stats = vb.Standardisation.of(train)  # of the training rows: an attacker of a test row cannot change them
    smoothing = vb.Gaussian(sigma=0.5)  # half a standard deviation of each feature
    weights = folder / "mlp.safetensors"
    if not weights.exists():
        rows = stats.applied(train.images), train.labels
        options = {"epochs": 60, "batch": 64, "lr": 0.003, "metadata": stats.metadata()}
        vb.train("mlp", rows, smoothing, out=weights, **options)

    model = load_model(weights)
    smoothed = vb.SmoothedClassifier(model, smoothing, input_range=None, arithmetic="float", standardise=stats)
    certs = smoothed.certify(test, n=10_000, out=folder / "run")
    print(certs.claim)
    for radius in (0.0, 0.25, 0.5, 0.75, 1.0):
        print(f"certified at {radius:4.2f} standard deviations: {certs.accuracy(radius):6.1%} of {len(certs)} rows")
    verdict = verify_run(folder / "run", data=test)
    print(f"verified: {verdict.inputs} claims; the inputs are {verdict.selection}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "table-example"))
