"""What a policy would change, without changing it."""
