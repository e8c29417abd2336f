"""Adapters of the ports to a real cluster; the only importer of `kubernetes` and `tenacity`."""
