"""Runs executables of users as processes that inherit only what they need."""
