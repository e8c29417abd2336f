"""One request that walks all existing triggers of a rule."""
