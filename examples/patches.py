"""Certify against a sticker anywhere, exactly: no probability is left. Extra: torch."""

import vauban as vb
from vauban.data import load

SMOOTHING = "band:size=6,threshold=0.3"  # a view keeps 6 columns, and votes for every class it is sure of

train = load("mnist:split=train").select(limit=6_000)
trained = vb.train("cnn-small", train, SMOOTHING, epochs=2, batch=128, lr=2e-3)

test = load("mnist:split=test").select(every=200)
smoothed = vb.SmoothedClassifier(trained.network, SMOOTHING, num_classes=10)
certs = smoothed.certify(test, out="runs/patches", progress=False)

print(f"{certs.votes_per_input} views an input, most voted label right: {certs.clean_accuracy:.0%}")
for side in (1, 2, 4):
    print(f"keeps its answer under every {side}x{side} patch: {certs.accuracy(side):.0%}")
print(f"and under every change of two whole columns: {certs.stands((28, 2)).mean():.0%}")

# The vote of every view is in the folder, so any other rectangle can be asked about later, without the model.
later = vb.Run.open("runs/patches").certificates()
for patch in ((5, 5), (3, 10), (28, 1)):
    print(f"{patch[0]} x {patch[1]}: {later.stands(patch).mean():.0%}")
