"""The run folder: a manifest, append-only tallies, and the claims derived from them."""
