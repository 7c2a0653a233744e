"""Stop as soon as an input is decided: the same guarantee with far fewer votes. Extra: torch."""

import vauban as vb
from vauban.data import load
from vauban.models import load as load_model
from vauban.models import packaged

digits = load("mnist:split=test").select(every=500)
smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), vb.Gaussian(sigma=0.5))

asked = smoothed.certify(digits, n=10_000, alpha=0.001, stop="target:radius=0.5", progress=False)
print(
    f"is radius 0.5 certified? yes for {asked.accuracy(0.5):.0%}, {asked.votes_per_input:,.0f} votes an input of 10,000"
)

curve = smoothed.certify(digits, n=2_000, alpha=0.001, stop="grid:step=0.5", progress=False)
print(
    f"the largest multiple of 0.5: median {curve.median_radius}, {curve.votes_per_input:,.0f} votes an input of 2,000"
)
print(f"undecided: {curve.undecided:.0%}")

# The radius grows until the time is up, or until Ctrl-C, and holds whenever that is.
grown = smoothed.certify(digits, alpha=0.001, stop="anytime", seconds=4, progress=False)
print(f"after 4 seconds: median radius {grown.median_radius:.3f}, {grown.votes_per_input:,.0f} votes an input")
