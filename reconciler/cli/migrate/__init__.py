"""Policies and what belongs to them, moved from one API group to the other."""
