"""The command `retrofit explain`: why a rule does or does not change an object."""
