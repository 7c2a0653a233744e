"""The engine: views through a network into votes, in compute shapes of a fixed size, here or on a cluster."""
