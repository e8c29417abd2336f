"""Finds triggers that nobody recorded and has their work done all the same."""
