"""One run, several claims: top 1 and top 3, fewer votes, another threat, all from the same votes. Extra: torch."""

import vauban as vb
from vauban.data import load
from vauban.models import load as load_model
from vauban.models import packaged

digits = load("mnist:split=test").select(every=500)
smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), "gaussian:sigma=0.5")
smoothed.certify(digits, n=1_000, alpha=0.001, out="runs/top-k", progress=False)

run = vb.Run.open("runs/top-k")  # from here on no model is needed, and no torch
claims = {
    "top 1": run.certificates(),
    "top 3": run.certificates(k=3),
    "top 1, the first 500 votes": run.certificates(n=500),
    "top 1, against changes of few pixels": run.certificates(threat="l0"),
}
for name, certs in claims.items():
    print(f"{name}: median radius {certs.median_radius:.4g}, undecided {certs.undecided:.0%}")
    for note in certs.notes:
        print(f"  note: {note}")
