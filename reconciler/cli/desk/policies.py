"""Policies of files: compiled, refused, or in a language that is not supported."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.meta import Object, own_namespaces
from reconciler.cli.desk.acceptance import compile_acceptable
from reconciler.cli.desk.documents import Document
from reconciler.cli.desk.values import DeskValues, Values, copies_of, split_path
from reconciler.cli.output.words import nearest
from reconciler.dialects.registry import KNOWN_KINDS, is_exception, is_policy
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy, InvalidSetting
from reconciler.requests.account import parse_account
from reconciler.services.catalog.protection import OWN_NAMESPACE

_NAMESPACED: Final = frozenset(kind.kind for kind in KNOWN_KINDS if kind.namespaced)
_OPERATIONS: Final = ("validate", "generate", "verifyImages")
_OF_OBJECTS: Final = frozenset({"target", "element", "elementIndex"})
_OF_REQUESTS: Final = frozenset(
    {"images", "request", "serviceAccountName", "serviceAccountNamespace"}
)
_REQUEST: Final = (
    *("operation", "oldObject", "name", "namespace", "kind", "resource", "subResource"),
    *("requestKind", "requestResource", "requestSubResource", "uid", "dryRun", "options"),
    *("userInfo", "roles", "clusterRoles"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A policy that cannot be evaluated.

    Attributes:
        message: The reason, with file, line and the place in the policy.
        foreign: Whether its language is not supported; otherwise the policy is invalid.
    """

    name: str
    message: str
    foreign: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """The policies of some files.

    Attributes:
        other_rules: Rules that are not mutate rules: policy key, name and operation, also by the
            names that autogen gives them.
    """

    compiled: tuple[CompiledPolicy, ...]
    refused: tuple[Refused, ...]
    warnings: tuple[str, ...]
    other_rules: tuple[tuple[str, str, str], ...]

    @property
    def wrong(self) -> int:
        """Return the number of invalid policies."""
        return sum(not item.foreign for item in self.refused)


def bind_account(policy: Object, compiled: CompiledPolicy) -> CompiledPolicy:
    """Return a policy bound to the ServiceAccount that it names, as in a cluster.

    Raises:
        InvalidPolicy: The policy names an account that it may not use.
    """
    return compiled.acting_as(parse_account(policy, reserved=own_namespaces(OWN_NAMESPACE)))


def placed_policy(obj: Object) -> Object:
    """Return a policy of any version of its kind with the namespace that a cluster gives it."""
    meta = obj["metadata"]
    if obj["kind"] not in _NAMESPACED or meta.get("namespace"):
        return obj
    return {**obj, "metadata": {**meta, "namespace": "default"}}


def compile_all(found: Iterable[tuple[Document, Object]], values: DeskValues) -> PolicySet:
    """Compile each policy once; other objects are ignored."""
    compiled: list[CompiledPolicy] = []
    refused: list[Refused] = []
    warnings: list[str] = []
    other: list[tuple[str, str, str]] = []
    for document, obj in found:
        name = str(obj["metadata"].get("name", ""))
        if not is_given(obj):
            if _is_foreign(obj):
                text = f"{document.place}: {obj['kind']} {name}: this language is not evaluated"
                refused.append(Refused(name=name, message=text, foreign=True))
            continue
        policy = placed_policy(obj)
        try:
            one = compile_acceptable(policy, given=values.given(name, rule_names(policy)))
        except InvalidPolicy as error:
            text = f"{document.place}: {obj['kind']} {name}: {error}"
            refused.append(Refused(name=name, message=text, foreign=False))
            continue
        compiled.append(one)
        warnings += [f"{document.place}: {one.ref.kind} {name}: {text}" for text in one.warnings]
        other += [(one.key, rule, what) for rule, what in _others(policy)]
    return PolicySet(
        compiled=tuple(compiled),
        refused=tuple(refused),
        warnings=tuple(warnings),
        other_rules=tuple(other),
    )


def is_given(obj: Object) -> bool:
    """Return whether an object is a policy to use, and not only the state of one."""
    return is_policy(obj) and not is_state(obj)


def is_state(obj: Mapping[str, Any]) -> bool:
    """Return whether an object has a state and no spec, like those that Chainsaw asserts."""
    return "status" in obj and "spec" not in obj


def holds_policy(obj: Object) -> bool:
    """Return whether an object is a policy in any language, or a PolicyException."""
    return is_policy(obj) or is_exception(obj) or _is_foreign(obj)


def _is_foreign(obj: Object) -> bool:
    return "policies." in obj["apiVersion"] or "AdmissionPolicy" in obj["kind"]


def check_settings(given: Values, compiled: Iterable[CompiledPolicy]) -> None:
    """Reject values of ``--set`` that no rule reads, which are mostly misspelt names.

    Args:
        compiled: All policies; a missing one might read a value.

    Raises:
        InvalidSetting: A path begins with a name that no rule reads.
    """
    programs = [program for policy in compiled for program in policy.programs]
    paths = {path[:2] for program in programs for path in program.reads}
    if () in paths:
        return
    roots = _OF_REQUESTS.union(path[0] for path in paths)
    for name, value in given.items():
        root, *rest = split_path(name)
        if root in _OF_OBJECTS:
            raise InvalidSetting(f"--set {name}: {root} comes from the objects, not from values")
        if root not in roots:
            text = f"no rule reads {root}{nearest(root, roots)}"
            raise InvalidSetting(f"--set {name}={value}: {text}")
        field = rest[0] if rest else ""
        if root == "request" and field not in _REQUEST and (root, field) not in paths:
            text = f"a request has no field {field}{nearest(field, _REQUEST)}"
            raise InvalidSetting(f"--set {name}={value}: {text}")


def _rules(policy: Object) -> list[dict[str, Any]]:
    spec = policy.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def rule_names(policy: Object) -> list[str]:
    """Return the names of the rules of a policy that may be malformed."""
    return [str(rule.get("name", "")) for rule in _rules(policy)]


def _others(policy: Object) -> list[tuple[str, str]]:
    return [
        (name, operation)
        for rule in _rules(policy)
        for operation in _OPERATIONS
        if rule.get(operation) is not None
        for name in copies_of(str(rule.get("name", "")))
    ]
