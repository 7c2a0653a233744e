"""Trains the base classifiers of an ensemble, each a function of its own training set and number alone."""
