"""Certificates against poisoned training sets, from the votes of base classifiers trained on parts of them."""
