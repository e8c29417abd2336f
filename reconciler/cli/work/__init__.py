"""The work of a live cluster: start it, look at it, do it again."""
