"""The data of GlobalContextEntries, kept at hand by the process that leads."""

from reconciler.services.catalog.globalcontext.keeping import Dependencies, GlobalContext

__all__ = ["Dependencies", "GlobalContext"]
