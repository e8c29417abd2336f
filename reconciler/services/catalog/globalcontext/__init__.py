"""The data of GlobalContextEntries, kept in memory by the processes that evaluate rules."""

from reconciler.services.catalog.globalcontext.keeping import GlobalContext, WithEntries
from reconciler.services.catalog.globalcontext.sources import Dependencies, Pace
from reconciler.services.catalog.globalcontext.statuses import ProblemLog, StatusWriter

__all__ = ["Dependencies", "GlobalContext", "Pace", "ProblemLog", "StatusWriter", "WithEntries"]
