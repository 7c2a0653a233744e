"""Run folders: a manifest, append-only votes, and the claims derived from them."""
