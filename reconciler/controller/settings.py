"""kopf's settings, as far as they differ from its defaults."""

import logging

import kopf

from reconciler.controller.storage import NoEssence, NoProgress


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
