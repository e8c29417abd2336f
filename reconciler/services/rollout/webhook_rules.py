"""Pure functions that compute the ``rules`` of webhooks: resources and operations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from reconciler.api.meta import Kind, Object, is_own_group
from reconciler.engine.match import KindScope, KindSelector
from reconciler.engine.program import CompiledPolicy, Phase, Program
from reconciler.engine.values.wildcard import has_wildcard
from reconciler.services.catalog.policy_store import ASKING

Kinds = Mapping[KindSelector, Sequence[Kind]]
Rules = dict[tuple[str, str, str, str], set[str]]
"""Operations by group, version, resource and scope."""


def programs_of(policies: Iterable[CompiledPolicy], *phases: Phase) -> list[Program]:
    """Return the rules of some policies that run in one of the phases."""
    return [
        program
        for policy in policies
        for program in policy.programs
        if not program.phases.isdisjoint(phases)
    ]


def selectors(policies: Iterable[CompiledPolicy]) -> frozenset[KindSelector]:
    """Return the kinds that have to be resolved before `configurations` is called.

    The kind ``*`` need not be resolved, because the webhook has a wildcard too.
    """
    return frozenset(
        scope.selector
        for program in programs_of(policies, *ASKING)
        for scope in program.match.kinds()
        if not _is_wild(scope.selector)
    )


def lookup(selector: KindSelector) -> tuple[str, str]:
    """Return the ``apiVersion`` and ``kind`` by which the Kinds port finds a selector."""
    group = f"{selector.group}/" if selector.group else ""
    # Subresources that are given as a wildcard are looked up by their parent: pods/*.
    named = selector.subresource and not has_wildcard(selector.subresource)
    kind = f"{selector.kind}/{selector.subresource}" if named else selector.kind
    return f"{group}{selector.version}", kind


def recorded(programs: Iterable[Program], kinds: Kinds) -> list[Object]:
    """Return the rules of a validating webhook: triggers to record and objects to refuse.

    That webhook sees the final object. No rule can refuse policies, least of all its own.
    """
    rules: Rules = {}
    for program in programs:
        refuses = Phase.VERDICT in program.phases
        for scope in program.match.kinds():
            operations = _operations(program, scope)
            for place in _places(scope.selector, kinds, program):
                if not (refuses and is_own_group(place[0])):
                    rules.setdefault(place, set()).update(operations)
    return render_rules(rules)


def changed(programs: Iterable[Program], kinds: Kinds) -> list[Object]:
    """Return the rules of a mutating webhook, for the objects that policies may change.

    DELETE is left out, because a deletion stores no object. The project's own API groups are left
    out, because no policy may change policies or the objects that the programs maintain.
    """
    rules: Rules = {}
    for program in programs:
        for scope in program.match.kinds():
            operations = _operations(program, scope) - {"DELETE"}
            for place in _places(scope.selector, kinds, program):
                if operations and not is_own_group(place[0]):
                    rules.setdefault(place, set()).update(operations)
    return render_rules(rules)


def _operations(program: Program, scope: KindScope) -> set[str]:
    if scope.operations:
        return set(scope.operations)
    operations = {"CREATE", "UPDATE"}
    # DELETE fires a rule that lists it anywhere, and then for all its kinds.
    if any("DELETE" in other.operations for other in program.match.kinds()):
        operations.add("DELETE")
    if scope.selector.subresource:
        operations.add("CONNECT")
    return operations


def _places(
    selector: KindSelector, kinds: Kinds, program: Program
) -> Iterator[tuple[str, str, str, str]]:
    """Yield group, version, resource and scope for the kinds that a selector resolves to."""
    namespaced = bool(program.origin.namespace)
    if _is_wild(selector):
        scope = "Namespaced" if namespaced else "*"
        resource = _joined("*", selector.subresource)
        yield _pattern(selector.group), _pattern(selector.version), resource, scope
        return
    for kind in kinds.get(selector, ()):
        if namespaced and not kind.namespaced:
            continue
        scope = "Namespaced" if kind.namespaced else "Cluster"
        resource = _joined(kind.plural, selector.subresource)
        yield kind.group, kind.version, resource, scope
        if kind.plural == "pods" and not kind.group and not selector.subresource:
            # For a rule that selects Pods, adding an ephemeral container changes the Pod.
            yield kind.group, kind.version, "pods/ephemeralcontainers", scope


def _joined(plural: str, subresource: str) -> str:
    return f"{plural}/{_pattern(subresource)}" if subresource else plural


def _pattern(text: str) -> str:
    # The API server only supports a full wildcard; the matcher narrows it down again.
    return "*" if has_wildcard(text) else text


def _is_wild(selector: KindSelector) -> bool:
    return selector.kind == "*"


def render_rules(rules: Rules) -> list[Object]:
    """Return rules in webhook format; those that differ only in the resource are merged."""
    merged: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (group, version, resource, scope), operations in rules.items():
        key = (group, version, scope, tuple(sorted(operations)))
        merged.setdefault(key, []).append(resource)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": sorted(resources),
            "operations": list(operations),
            "scope": scope,
        }
        for (group, version, scope, operations), resources in sorted(merged.items())
    ]
