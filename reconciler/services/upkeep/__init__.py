"""What keeps the cluster tidy while a process leads."""
