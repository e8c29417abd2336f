"""Composition root: which adapter stands behind which port, for every entry point."""
