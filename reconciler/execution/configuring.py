"""The configuration that an executable prints, read and compiled."""

from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.config import load_config
from reconciler.services.hooks.compiling import compile_programs
from reconciler.services.ports.jq import Jq


async def read_printed(text: str, jq: Jq) -> HookConfig:
    """Read what an executable printed, and have its jq programs compiled.

    Raises:
        InvalidPolicy: It cannot be used, with all places.
    """
    config = load_config(text)
    await compile_programs(config.programs, jq)
    return config
