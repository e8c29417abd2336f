"""Composition root: binds adapters to ports for every entry point."""
