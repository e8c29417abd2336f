"""Validation of a GlobalContextEntry, which is refused if it cannot be kept."""

import asyncio
import contextlib

from admission.authoring import failing, rights_of
from admission.checks import ValidationDeps, refuse, warnings
from admission.decide import AdmissionResponse
from reconciler.api.meta import Object
from reconciler.api.rights import Need
from reconciler.clock import Deadline
from reconciler.dialects.registry import CompiledEntry, compile_entry
from reconciler.errors import ClusterError, InvalidPolicy
from reconciler.services.authoring.lint import entry_refusals


async def check_entry(
    entry: Object, deps: ValidationDeps, deadline: Deadline
) -> AdmissionResponse:
    """Return whether an entry can be stored, with warnings for its author."""
    try:
        compiled = compile_entry(entry)
    except InvalidPolicy as error:
        return refuse(entry, [str(error)])
    if refusals := [
        f"{item.location}: {item.text}" for item in entry_refusals(compiled, deps.protection)
    ]:
        return refuse(entry, refusals)
    noted = [(text, "") for text in compiled.warnings]
    return AdmissionResponse(
        warnings=warnings(
            [*noted, *failing(await _unkept(compiled, deps, deadline), deps.installation)]
        )
    )


async def _unkept(
    entry: CompiledEntry, deps: ValidationDeps, deadline: Deadline
) -> tuple[Need, ...]:
    """Return the rights that the admission server lacks to keep an entry that rules read."""
    names = deps.read_entries()
    if names is not None and entry.name not in names:
        return ()
    with contextlib.suppress(ClusterError, TimeoutError):  # Only warnings depend on it.
        async with asyncio.timeout(deadline.left):
            return await rights_of(deps.reader, deps).unkept(entry)
    return ()
