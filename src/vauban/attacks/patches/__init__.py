"""Attacks by iterated signed gradients, of whole pictures and of patches."""
