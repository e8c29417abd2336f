"""kopf's settings, as far as they differ from its defaults."""

import logging

import kopf

from reconciler.controller.storage import NoEssence, NoProgress


def operator_settings(page: int) -> kopf.OperatorSettings:
    """Return settings for an operator that only listens.

    Args:
        page: Objects per page of the first list.
    """
    # It tells of every event that a handler returned from; what matters we say ourselves.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It asks for definitions that nobody has to install; those that are needed we wait for.
    logging.getLogger("kopf._core.reactor.observation").setLevel(logging.ERROR)
    settings = kopf.OperatorSettings()
    # Our own events go through a port with a rate limit; kopf's would double them.
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = NoEssence()
    settings.persistence.progress_storage = NoProgress()
    # A task per object is kept for more events of it; ours come as a burst of two.
    settings.queueing.idle_timeout = 0.5
    settings.queueing.exit_timeout = 0.5
    # A dead connection says nothing: both sides end a watch after minutes.
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = page
    return settings
