"""Feedback for authors: errors, surprises and missing rights of a policy."""
