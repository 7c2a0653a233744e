"""Attacks that move mass between nearby pixels, measured by the 1-Wasserstein distance."""
