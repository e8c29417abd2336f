"""kopf's settings, as far as they differ from its defaults."""

import logging
from typing import Any

import kopf
from typing_extensions import override


class NoEssence(kopf.DiffBaseStorage):
    """Holds no previous state of any object, which handlers that only listen do not need.

    Neither do they need their own progress. kopf would copy every object several times per event
    for both (measured: two thirds of its CPU time per event).
    """

    @override
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    @override
    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    @override
    def store(self, **_: Any) -> None:
        """Store nothing: kopf must not write to objects."""


class NoProgress(kopf.ProgressStorage):
    """Holds no unfinished handlers."""

    @override
    def fetch(self, **_: Any) -> Any:
        return None

    @override
    def store(self, **_: Any) -> None:
        """Store nothing: kopf must not write to objects."""

    @override
    def purge(self, **_: Any) -> None:
        """Do nothing: no progress is stored."""

    @override
    def touch(self, **_: Any) -> None:
        """Do nothing: kopf must not write to objects."""

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def operator_settings(page: int) -> kopf.OperatorSettings:
    """Return settings for an operator that only listens.

    Args:
        page: Objects per page of the first list.
    """
    # kopf logs every handled event at INFO, which duplicates this project's logs.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It looks for definitions that are optional here; required kinds are awaited at the start.
    logging.getLogger("kopf._core.reactor.observation").setLevel(logging.ERROR)
    settings = kopf.OperatorSettings()
    # Events are emitted through the rate-limited `Events` port; kopf's would duplicate them.
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = NoEssence()
    settings.persistence.progress_storage = NoProgress()
    # kopf keeps a task per object for further events, which come here as a burst of two.
    settings.queueing.idle_timeout = 0.5
    settings.queueing.exit_timeout = 0.5
    # A dead connection sends nothing, so both sides end a watch after minutes.
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = page
    return settings
