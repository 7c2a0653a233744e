"""Check a run that somebody sent: what is claimed, what it presupposes, and that an altered count is found. No torch."""

import shutil
import sys
from pathlib import Path

import vauban as vb
from vauban.errors import Lie

folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "results/sampled/gaussian")
run = vb.Run.open(folder)
verdict = run.verify()  # recomputes every radius from the votes

print(verdict.claim)
print(f"{verdict.inputs} claims recomputed from {verdict.votes:,} votes; all hold. What the folder cannot prove:")
for sentence in verdict.unproven:
    print(f"- {sentence}")
certs = run.certificates()
print(f"certified at 0.5: {certs.accuracy(0.5):.1%}, proven: {certs.accuracy_claim(0.5):.1%}")

altered = Path("altered-run")
shutil.copytree(folder, altered, dirs_exist_ok=True)
claims = (altered / "claims.csv").read_text().splitlines()
index, label, _, *rest = claims[1].split(",")
claims[1] = ",".join([index, label, "9.9", *rest])  # a larger radius for the first input
(altered / "claims.csv").write_text("\n".join(claims) + "\n")
try:
    vb.Run.open(altered).verify()
    print("the altered copy was not noticed")
except Lie as problem:
    print(f"an altered copy is refused: {problem}")
