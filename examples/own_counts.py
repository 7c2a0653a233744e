"""Turn anybody's counts into radii: no model, no torch, no run folder."""

import numpy as np

import vauban as vb
from vauban.radius_planning import plan_radius

# Votes of 10,000 views for five classes; the label must have been fixed before these votes were drawn.
counts = np.array([[9_800, 120, 50, 20, 10], [6_100, 3_000, 500, 300, 100], [4_000, 3_900, 1_500, 400, 200]])
labels = np.array([0, 0, 0])

for smoothing in ("gaussian:sigma=0.5", "laplace:sigma=0.5", "uniform:sigma=0.5"):
    for k in (1, 2):
        certs = vb.derive(counts, labels, smoothing, k=k, alpha=0.001)
        radii = ", ".join("no claim" if np.isnan(radius) else f"{radius:.4f}" for radius in certs.radius)
        print(f"{smoothing}, top {k}, {certs.threat.name}: {radii}")

# The same the other way round: what does a radius of 0.5 need?
for need in plan_radius(0.5, "gaussian", n=10_000).levels:
    print(f"{need.smoothing}: {need.wins:,} of {need.n:,} votes")
