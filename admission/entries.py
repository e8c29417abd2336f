"""The check of a GlobalContextEntry: one that cannot be kept is refused."""

from admission.checks import Means, refuse, warnings
from admission.decide import Answer
from reconciler.api.meta import Object
from reconciler.dialects import compile_entry
from reconciler.errors import InvalidPolicy
from reconciler.services.lint import entry_refusals


async def check_entry(entry: Object, means: Means) -> Answer:
    """Return whether an entry can be stored, and what its author should know."""
    try:
        compiled = compile_entry(entry)
    except InvalidPolicy as error:
        return refuse(entry, [str(error)])
    if refusals := [
        f"{item.location}: {item.text}" for item in entry_refusals(compiled, means.protection)
    ]:
        return refuse(entry, refusals)
    return Answer(warnings=warnings((text, "") for text in compiled.warnings))
