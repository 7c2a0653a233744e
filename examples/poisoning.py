"""Certify against a poisoned training set with scikit-learn classifiers. Extra: poisoning."""

from sklearn.naive_bayes import GaussianNB

import vauban as vb
from vauban.data import load
from vauban.poisoning import Ensemble, Partition, SklearnTrainer

train = load("mnist:split=train").select(limit=6_000)
test = load("mnist:split=test").select(every=100)
x, inputs = (data.images.reshape(len(data), -1).astype("float32") / 255 for data in (train, test))

# Each of 60 classifiers sees its own part of the training set, and a sample belongs to one part: it can turn one vote.
ensemble = Ensemble.fit(x, train.labels, Partition(60), SklearnTrainer(GaussianNB(var_smoothing=0.1), 10))
certs = ensemble.certify(inputs, test.labels, out="runs/poisoning")

print(f"clean accuracy {certs.clean_accuracy:.0%}")
for samples in (1, 5, 10, 20):
    print(f"keeps its label whatever {samples} samples are added or removed: {certs.accuracy(samples):.0%}")
print(vb.Run.open("runs/poisoning").verify().claim)
