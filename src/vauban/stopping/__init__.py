"""When enough votes are cast: sequential tests as rules over looks, for every sampled law through its shift; no torch."""
