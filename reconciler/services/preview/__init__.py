"""Preview of what a policy would change, without changing it."""
