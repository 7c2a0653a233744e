"""Certificates against poisoned training sets, from the votes of base classifiers trained on its parts."""
