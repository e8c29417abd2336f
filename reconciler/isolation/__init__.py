"""Processes in which something is evaluated that may take long, or more memory than there is."""

from reconciler.isolation.children import ChildProcesses
from reconciler.isolation.limits import Limits

__all__ = ["ChildProcesses", "Limits"]
