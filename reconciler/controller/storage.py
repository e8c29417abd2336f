"""kopf's memory about objects, switched off.

Handlers that only listen need neither the last seen essence of an object nor their own progress;
kopf would still copy every object several times per event to have them (measured: two thirds of
its CPU time per event).
"""

from typing import Any

import kopf
from typing_extensions import override


class NoEssence(kopf.DiffBaseStorage):
    """Never knows what an object was like before."""

    @override
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    @override
    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    @override
    def store(self, **_: Any) -> None:
        """Store nothing: nothing may be written to an object."""


class NoProgress(kopf.ProgressStorage):
    """Never knows of an unfinished handler."""

    @override
    def fetch(self, **_: Any) -> Any:
        return None

    @override
    def store(self, **_: Any) -> None:
        """Store nothing: nothing may be written to an object."""

    @override
    def purge(self, **_: Any) -> None:
        """There is nothing to remove."""

    @override
    def touch(self, **_: Any) -> None:
        """Nothing may be written to an object."""

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
