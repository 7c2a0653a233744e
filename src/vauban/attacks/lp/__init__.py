"""Attacks in L2, L1 and L-infinity."""
