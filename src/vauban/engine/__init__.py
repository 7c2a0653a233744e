"""The engine: turns views into votes in compute shapes of a fixed size, in this process or on a cluster."""
