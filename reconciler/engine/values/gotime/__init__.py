"""Times as Go reads and writes them."""
