"""Languages that policies write expressions in: pure, unaware of policies and of each other."""
