"""Training of base classifiers that stay accurate on views."""

from vauban.training.trainer import Recipe, train

__all__ = ["Recipe", "train"]
