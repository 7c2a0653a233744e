"""Certify against changes of a few pixels, exactly: every pixel is in one view. Extra: torch."""

import vauban as vb
from vauban.data import load

SMOOTHING = vb.Sparse(scale=12)

train = load("mnist:split=train").select(limit=6_000)
trained = vb.train("cnn-small", train, SMOOTHING, epochs=2, batch=128, lr=2e-3)

test = load("mnist:split=test").select(every=200)
certs = vb.SmoothedClassifier(trained.network, SMOOTHING, num_classes=10).certify(test, progress=False)

print(f"{certs.votes_per_input} views an input, most voted label right: {certs.clean_accuracy:.0%}")
for pixels in (0, 1, 2, 3, 4):
    print(f"keeps its label whatever {pixels} pixels become: {certs.accuracy(pixels):.0%}")

# The same votes against another threat: a patch of s x s pixels changes s^2 pixels.
for side in (1, 2):
    print(f"so it keeps its label under every {side}x{side} patch: {certs.accuracy(side**2):.0%}")
print(certs.claim)
