"""Benchmarks: the speed of Vauban and of alternatives, measured in one run; none of them is a unit test."""
