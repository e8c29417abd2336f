"""The check of a GlobalContextEntry: one that cannot be kept is refused."""

from admission.checks import ValidationDeps, refuse, warnings
from admission.decide import AdmissionResponse
from reconciler.api.meta import Object
from reconciler.clock import Deadline
from reconciler.dialects.registry import compile_entry
from reconciler.errors import InvalidPolicy
from reconciler.services.authoring.lint import entry_refusals


async def check_entry(
    entry: Object, means: ValidationDeps, _deadline: Deadline
) -> AdmissionResponse:
    """Return whether an entry can be stored, and what its author should know."""
    try:
        compiled = compile_entry(entry)
    except InvalidPolicy as error:
        return refuse(entry, [str(error)])
    if refusals := [
        f"{item.location}: {item.text}" for item in entry_refusals(compiled, means.protection)
    ]:
        return refuse(entry, refusals)
    return AdmissionResponse(warnings=warnings((text, "") for text in compiled.warnings))
