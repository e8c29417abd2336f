"""Logs, metrics and health of a running program, for people and monitoring."""
