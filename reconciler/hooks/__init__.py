"""Hooks of shell-operator: their bindings, the contexts that they read, and their answers.

The package only transforms values; `docs/design/0014-hooks.md` describes the services that use it.
"""
