"""A policy language of a few lines, planted into a copy of the tree; see `test_toy_dialect`."""
