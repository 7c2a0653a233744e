"""Attacks in fractional Lp and other elementwise-concave metrics."""
