"""The papers, each under the key by which docstrings cite it."""

REFERENCES = {
    "Jia2020": "Jia, Cao, Wang, Gong. Certified Robustness for Top-k Predictions against Adversarial Perturbations "
    "via Randomized Smoothing. ICLR 2020.",
    "Cohen2019": "Cohen, Rosenfeld, Kolter. Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.",
    "Hung2019": "Hung, Fithian. Rank Verification for Exponential Families. Annals of Statistics 47(2), 2019.",
    "Clopper1934": "Clopper, Pearson. The Use of Confidence or Fiducial Limits Illustrated in the Case of the "
    "Binomial. Biometrika 26, 1934.",
    "Boucheron2013": "Boucheron, Lugosi, Massart. Concentration Inequalities. Oxford 2013.",
    "Salmon2011": "Salmon, Moraes, Dror, Shaw. Parallel Random Numbers: As Easy as 1, 2, 3. SC 2011.",
    "Levine2023": "Levine. Doctoral dissertation, University of Maryland, 2023 (tables and theorems cited by number).",
}
