"""The command `retrofit preview`: the changes that policies would make to a live cluster."""
