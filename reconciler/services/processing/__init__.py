"""Processing of stored requests: changes their targets and writes their statuses."""
