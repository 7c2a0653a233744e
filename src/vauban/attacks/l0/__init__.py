"""Attacks that change few pixels or features."""
