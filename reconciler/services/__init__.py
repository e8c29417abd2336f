"""Use cases over ports: they join the pure engine and life cycle to a cluster."""
