"""Findings for the author of a policy of this language; the code is pure."""
