"""Fused networks: the module's graph with batch norms folded and convolutions that add and rectify in one kernel."""
