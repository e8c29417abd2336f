"""Parses and compiles the configuration that an executable prints."""

from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.config import load_config
from reconciler.services.hooks.compiling import compile_programs
from reconciler.services.ports.jq import Jq


async def read_printed(text: str, jq: Jq) -> HookConfig:
    """Return the configuration that an executable printed, with its jq programs checked.

    Raises:
        InvalidPolicy: It cannot be used; lists all locations.
    """
    config = load_config(text)
    await compile_programs(config.programs, jq)
    return config
