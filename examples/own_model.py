"""Train any torch model with noise, certify it, and verify the run. Extra: torch."""

import torch

import vauban as vb
from vauban.data import load

SIGMA = 0.5

digits = load("mnist:split=train").select(limit=4_000)
x, y = torch.from_numpy(digits.images).float() / 255, torch.from_numpy(digits.labels)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(120):
    chosen = torch.randint(len(x), (512,))
    noisy = x[chosen] + SIGMA * torch.randn_like(x[chosen])  # a model must have seen noise to stand it
    loss = torch.nn.functional.cross_entropy(model(noisy), y[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

test = load("mnist:split=test").select(every=200)
smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=SIGMA), num_classes=10)
certs = smoothed.certify(test, n=1_000, alpha=0.001, out="runs/own-model", progress=False)

print(f"most voted label is right: {certs.clean_accuracy:.0%}, undecided: {certs.undecided:.0%}")
for radius in (0.0, 0.5, 1.0):
    print(f"certified at radius {radius}: {certs.accuracy(radius):.0%}, proven: {certs.accuracy_claim(radius):.0%}")

verdict = vb.Run.open("runs/own-model").verify()
print(f"{verdict.inputs} claims recomputed from {verdict.votes:,} votes")
