"""Attacks: how near there is an input with another answer, beside how far none is proven to be."""
