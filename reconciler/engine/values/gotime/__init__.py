"""Times as Go parses and formats them."""
