"""Streaming of triggers: large numbers of them are read one by one to save memory."""

from collections.abc import Callable, Iterable, Iterator

from reconciler.api.meta import Object
from reconciler.cli.desk.file_objects import Scopes
from reconciler.cli.desk.files import Content, no_matter, objects, read_contents
from reconciler.cli.desk.policies import PolicySet
from reconciler.engine.program import Program
from reconciler.errors import InvalidSetting

_DEFINITION = b"CustomResourceDefinition"


def triggers_alone(policies: PolicySet) -> bool:
    """Return whether the policies see nothing but each trigger: no targets, no loads."""
    return all(_alone(program) for policy in policies.compiled for program in policy.programs)


def stream(
    names: Iterable[str], scopes: Scopes, pass_over: Callable[[str], None] = no_matter
) -> Iterator[Object] | None:
    """Return a lazy iterator of the objects of files, each with its namespace.

    Return None where a file defines custom resources, as a definition may follow its objects.

    Raises:
        InvalidSetting: A file is missing; while iterating: a file is invalid, or all are empty.
    """
    contents = list(read_contents(names))
    if any(_DEFINITION in content.data for content in contents):
        return None
    return _stream(contents, " ".join(names), scopes, pass_over)


def _stream(
    contents: list[Content], names: str, scopes: Scopes, pass_over: Callable[[str], None]
) -> Iterator[Object]:
    found = False
    contents.reverse()
    while contents:
        for _, obj in objects(contents.pop().documents(), pass_over):
            found = True
            yield scopes.placed(obj)
    if not found:
        raise InvalidSetting(f"{names}: no object found")


def _alone(program: Program) -> bool:
    return (
        program.changes_trigger
        and not program.match.needs.namespace_labels
        and not program.binding.loads
    )
