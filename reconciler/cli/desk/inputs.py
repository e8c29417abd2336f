"""Reading and checking the inputs of `retrofit apply`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from reconciler.api.meta import Object
from reconciler.cli.desk.cue import cue_of
from reconciler.cli.desk.documents import Document
from reconciler.cli.desk.file_objects import Answers, FileObjects, Key, Scopes
from reconciler.cli.desk.files import (
    Content,
    checked,
    no_matter,
    objects,
    read_all,
    read_contents,
    read_one,
)
from reconciler.cli.desk.policies import PolicySet, check_settings, compile_all, holds_policy
from reconciler.cli.desk.values import (
    DeskValues,
    check_head,
    read_settings,
    read_user,
    read_values,
)
from reconciler.dialects.registry import compile_exception, is_exception
from reconciler.engine import reading
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.match import UserInfo
from reconciler.errors import InvalidPolicy, InvalidSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The files and the pairs of ``--set`` of one command line.

    Attributes:
        policies: Without ``resources``, the files that hold no policy hold the triggers.
        cue: The command that evaluates CUE programs; empty where none is named.
    """

    policies: Sequence[str]
    resources: Sequence[str]
    targets: Sequence[str] = ()
    contexts: Sequence[str] = ()
    exceptions: Sequence[str] = ()
    settings: Sequence[str] = ()
    values: str | None = None
    user: str | None = None
    cue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of an evaluation.

    Attributes:
        triggers: All triggers. An iterator reads them one by one; then `file_objects` holds none.
        unplaced: Namespaced objects whose files name no namespace.
        passed_over: Skipped files of folders, which hold no objects; complete when all triggers
            are read.
        targets_given: Whether files with targets were named.
    """

    policies: PolicySet
    triggers: Sequence[Object] | Iterator[Object]
    file_objects: FileObjects
    values: DeskValues
    user: tuple[UserInfo, dict[str, Any]] | None
    exceptions: Sequence[PolicyException]
    unplaced: AbstractSet[Key]
    passed_over: AbstractSet[str]
    targets_given: bool


def read_inputs(paths: Paths, *, streamed: bool = False) -> Inputs:
    """Read all files; triggers may be streamed if requested and if the result is the same.

    Raises:
        InvalidSetting: A file is missing or unreadable, or holds nothing to evaluate.
    """
    named = [*paths.policies, *paths.resources, *paths.targets, *paths.contexts]
    if named.count("-") > 1:
        raise InvalidSetting("standard input (-) can be read once only")
    values = DeskValues() if paths.values is None else read_values(*read_one(paths.values))
    values = replace(values, fixed=read_settings(paths.settings))
    passed_over: set[str] = set()
    given, plain = _arguments(paths, passed_over.add)
    policies = compile_all(given, values)
    if not policies.compiled and not policies.refused:
        raise InvalidSetting(f"{' '.join(paths.policies)}: no policy found")
    if not policies.wrong:
        check_settings(values.fixed, policies.compiled)
    scopes = Scopes()
    context, answers = _context(paths.contexts)
    exceptions = read_exceptions(paths.exceptions)
    triggers: Sequence[Object] | Iterator[Object] | None = None
    held: Sequence[Object] = ()
    if streamed and paths.resources and not exceptions and _triggers_alone(policies):
        triggers = _streamed(paths.resources, scopes, passed_over.add)
    if triggers is None:
        resources = objects(read_all(paths.resources), passed_over.add)
        triggers = held = _in_place([*plain, *resources], scopes)
        if paths.resources and not held:
            raise InvalidSetting(f"{' '.join(paths.resources)}: no object found")
    targets = placed(paths.targets, scopes, pass_over=passed_over.add)
    seen = [*targets, *map(scopes.placed, context)]
    return Inputs(
        policies=policies,
        triggers=triggers,
        file_objects=FileObjects([*held, *seen, *values.namespaces], answers, cue_of(paths.cue)),
        values=values,
        user=None if paths.user is None else read_user(*read_one(paths.user)),
        exceptions=exceptions,
        unplaced=scopes.moved,
        passed_over=passed_over,
        targets_given=bool(paths.targets),
    )


def _triggers_alone(policies: PolicySet) -> bool:
    """Return whether the policies see nothing but each trigger: no targets, no loads."""
    return all(
        program.changes_trigger
        and not program.match.needs.namespace_labels
        and not program.binding.loads
        for policy in policies.compiled
        for program in policy.programs
    )


def _streamed(
    names: Sequence[str], scopes: Scopes, pass_over: Callable[[str], None]
) -> Iterator[Object] | None:
    """Return an iterator that reads the objects of files one by one, to save memory.

    Return None where a file defines custom resources, as a definition may follow its objects.
    """
    contents = list(read_contents(names))
    if any(b"CustomResourceDefinition" in content.data for content in contents):
        return None
    return _one_by_one(contents, " ".join(names), scopes, pass_over)


def _one_by_one(
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


_Found: TypeAlias = list[tuple[Document, Object]]


def _arguments(paths: Paths, pass_over: Callable[[str], None]) -> tuple[_Found, _Found]:
    """Return the objects of plain arguments: of files with policies, and those with triggers."""
    policies: _Found = []
    triggers: _Found = []
    empty: list[str] = []
    for name in paths.policies:
        found = list(objects(read_all([name]), pass_over))
        empty += [] if found else [name]
        named = paths.resources or any(holds_policy(obj) for _, obj in found)
        (policies if named else triggers).extend(found)
    if policies and empty and not (triggers or paths.resources):
        raise InvalidSetting(f"{' '.join(empty)}: no object found")
    return policies, triggers


def placed(
    names: Iterable[str],
    scopes: Scopes,
    *,
    base: Path | None = None,
    pass_over: Callable[[str], None] = no_matter,
) -> list[Object]:
    """Return the objects of files, each with its namespace; arguments as of `objects`."""
    return _in_place(objects(read_all(names, base=base), pass_over), scopes)


def _in_place(listed: Iterable[tuple[Document, Object]], scopes: Scopes) -> list[Object]:
    found: list[Object] = []
    for _, obj in listed:
        scopes.learn(obj)
        found.append(scopes.placed(obj))
    return found


def read_exceptions(
    names: Sequence[str], *, base: Path | None = None
) -> tuple[PolicyException, ...]:
    """Return the PolicyExceptions of files; other objects are ignored.

    Raises:
        InvalidSetting: An exception is malformed, or the files contain none.
    """
    found: list[PolicyException] = []
    held = list(objects(read_all(names, base=base)))
    # Those of CEL policies have another group; they are ignored, as the policies are.
    if names and all(obj.get("kind") != "PolicyException" for _, obj in held):
        raise InvalidSetting(f"{' '.join(names)}: no PolicyException found")
    for document, obj in held:
        if not is_exception(obj):
            continue
        try:
            found.append(compile_exception(obj))
        except InvalidPolicy as error:
            raise InvalidSetting(f"{document.place}: {error}") from error
    return tuple(found)


def _context(names: Iterable[str]) -> tuple[list[Object], Answers]:
    found: list[Object] = []
    entries: dict[str, Any] = {}
    for document in read_all(names):
        value = document.value
        if not isinstance(value, dict) or value.get("kind") != "Context":
            found += [obj for _, obj in objects([document])]
            continue
        check_head(value, document.place, ("Context",))
        place = f"{document.place}: spec"
        try:
            spec = reading.object_at(value.get("spec"), place)
            listed = reading.sequence(spec.get("resources"), f"{place}.resources")
            entries |= reading.object_at(spec.get("globalReference"), f"{place}.globalReference")
        except InvalidPolicy as error:
            raise InvalidSetting(str(error)) from error
        found += [
            checked(item, f"{place}.resources[{index}]", document.size)
            for index, item in enumerate(listed)
        ]
    return found, Answers(entries=entries)
