"""From a changed policy to one that is in force."""
