"""Catch-up: finds triggers that were stored and not recorded, and requests their work."""
