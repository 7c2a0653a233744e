"""Certificates against patches: one region of a picture is kept, or several, and the rest is hidden."""
