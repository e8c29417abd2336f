"""Before an object is stored: what rules change of it."""
