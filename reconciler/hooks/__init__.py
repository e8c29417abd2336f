"""Hooks as shell-operator has them: what binds them, what they are given, what they answer.

Values in, values out: `docs/design/0014-hooks.md` says who acts on them.
"""
