"""Backends: libraries other than torch that run the network; one file for each, behind the protocol in `protocol`."""
