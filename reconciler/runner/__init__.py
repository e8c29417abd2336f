"""`retrofit-hooks`: runs hooks that are executables, with the rights of its own Pod."""
