"""The ports on an in-memory cluster, for the desk and for tests; held to the contract suite."""
