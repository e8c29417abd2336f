"""Compilation check of a hook's jq programs, shared by webhook, controller and desk."""

from collections.abc import Iterable

from reconciler.errors import ErrorList, InvalidPolicy
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
