"""Trains thousands of small networks side by side, their weights stacked in one tensor."""
