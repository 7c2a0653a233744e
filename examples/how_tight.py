"""Attack a certified classifier: the true radius lies between the certificate and the attack. Extra: torch."""

import numpy as np

import vauban as vb
from vauban.data import load
from vauban.models import load as load_model
from vauban.models import packaged

digits = load("mnist:split=test").select(every=5_000)
smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), vb.Gaussian(sigma=0.5))
certs = smoothed.certify(digits, n=2_000, alpha=0.001, progress=False)

found = vb.attack(smoothed, digits, certificates=certs, attacks="minimal:steps=20", views=8, votes=200, progress=False)
for radius, distance in zip(certs.radius, found.distance, strict=True):
    attack = "none found" if np.isinf(distance) else f"{distance:.3f}"
    print(f"certified up to {radius:.3f}, nearest attack {attack}")
print(f"alarms, where an attack contradicts a certificate: {len(found.alarms)}")

# Finding nothing proves nothing, and a gap is no fault: the certificate's slack, the attack's weakness and few votes together.
print(f"median gap, distance less radius: {found.median_gap:.3f}")
