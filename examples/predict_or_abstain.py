"""Use the smoothed classifier: a label where the votes are clear, and no answer where they are not. Extra: torch."""

import vauban as vb
from vauban.data import load
from vauban.models import load as load_model
from vauban.models import packaged

digits = load("mnist:split=test").select(every=400)
smoothed = vb.SmoothedClassifier(load_model(packaged("mnist")), vb.Gaussian(sigma=0.5))

answers = smoothed.predict(digits, k=1, n=200, alpha=0.001)
right = wrong = 0
for answer, truth in zip(answers, digits.labels, strict=True):
    if answer is None:
        continue
    right, wrong = right + (answer[0] == truth), wrong + (answer[0] != truth)
print(f"right {right}, wrong {wrong}, no answer {int(answers.abstained.sum())} of {len(answers)}")

# A claim about an input whose label is not known: 100 votes that are not counted choose the label that is certified.
certs = smoothed.certify(digits.images[:3], n=500, alpha=0.001, progress=False)
for label, radius, abstained in zip(certs.label, certs.radius, certs.abstained, strict=True):
    print("no claim" if abstained else f"label {label}, L2 radius {radius:.3f}")
