"""Exact lists of views for metrics that sum a concave function of every change, found by integer programming."""
