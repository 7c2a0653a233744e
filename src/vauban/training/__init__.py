"""Training of base classifiers that stay accurate on views."""

from vauban.training.recipe import Recipe
from vauban.training.trainer import Trained, TrainingProgress, train
from vauban.training.validation import Validation, split

__all__ = ["Recipe", "Trained", "TrainingProgress", "Validation", "split", "train"]
