"""The data of GlobalContextEntries, kept at hand by the process that leads."""

from reconciler.services.globalcontext.keeping import GlobalContext, Surroundings

__all__ = ["GlobalContext", "Surroundings"]
