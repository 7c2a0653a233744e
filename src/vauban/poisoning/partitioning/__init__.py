"""Splits a training set by the content of its samples."""
