"""Use cases over ports, which connect the pure engine and life cycle to a cluster."""
