"""The controller program: kopf outside, services inside."""

from reconciler.controller.app import run

__all__ = ["run"]
