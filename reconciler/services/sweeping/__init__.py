"""Sweeps: one request that works through all existing triggers of a rule."""
