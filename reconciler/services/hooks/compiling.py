"""The jq programs of a hook, compiled: what a webhook, a controller and the desk refuse alike."""

from collections.abc import Iterable

from reconciler.errors import ErrorList, InvalidPolicy
from reconciler.services.ports.jq import Jq


async def compile_programs(programs: Iterable[tuple[str, str]], jq: Jq) -> None:
    """Look whether all of some programs, each after its place, can be compiled.

    Raises:
        InvalidPolicy: One cannot, with all places.
        Interrupted: That is nobody's fault who wrote them; another attempt may succeed.
    """
    with ErrorList() as errors:
        for location, program in programs:
            try:
                await jq.compile(program, location=location)
            except InvalidPolicy as error:
                errors.add(error)
