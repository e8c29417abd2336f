"""Compilation check of a hook's jq programs, shared by webhook, programs and desk."""

from collections.abc import Iterable

from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.hooks.bindings import HookConfig
from reconciler.hooks.config import load_config
from reconciler.services.ports.jq import Jq


async def compile_programs(programs: Iterable[tuple[str, str]], jq: Jq) -> None:
    """Check that programs can be compiled, each given after its location.

    Raises:
        InvalidPolicy: A program does not compile; lists all locations.
        Interrupted: The check was interrupted for an outside reason; a retry may succeed.
    """
    with ErrorList() as errors:
        for location, program in programs:
            try:
                await jq.compile(program, location=location)
            except InvalidPolicy as error:
                errors.add(error)


async def read_printed(text: str, jq: Jq) -> HookConfig:
    """Return the configuration that an executable printed, with its jq programs checked.

    Raises:
        InvalidPolicy: It cannot be used; lists all locations.
    """
    config = load_config(text)
    await compile_programs(config.programs, jq)
    return config
