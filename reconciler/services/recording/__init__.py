"""From a trigger that admission saw to a request that is stored."""
