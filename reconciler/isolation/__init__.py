"""Child processes for evaluations that may take long or exhaust the memory."""

from reconciler.isolation.children import ChildProcesses
from reconciler.isolation.limits import Limits

__all__ = ["ChildProcesses", "Limits"]
