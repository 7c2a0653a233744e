"""Attacks on the training sets of ensembles."""

from vauban.attacks.poisoning.retraining import Change, Poisoned, poison

__all__ = ["Change", "Poisoned", "poison"]
