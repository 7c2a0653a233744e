"""Adapters: models as other libraries make them, as base classifiers from views to scores."""
