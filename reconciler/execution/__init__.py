"""Executables of users, run as processes with no more of this one than they need."""
