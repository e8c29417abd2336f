"""The configuration that an executable prints, read and compiled."""

from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.config import load_config
from reconciler.services.ports.jq import Jq


async def read_printed(text: str, jq: Jq) -> HookConfig:
    """Read what an executable printed, and have its jq programs compiled.

    Raises:
        InvalidPolicy: It cannot be used, with all places.
    """
    config = load_config(text)
    for index, binding in enumerate(config.kubernetes):
        if binding.jq_filter:
            await jq.compile(binding.jq_filter, location=f"kubernetes[{index}].jqFilter")
    return config
