"""Experiments as small declarative files: train what is missing, certify, verify, and compare with published numbers."""
