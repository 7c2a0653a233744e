"""Counts the votes of base classifiers, keeps them in files and run folders, and derives certificates from them."""
