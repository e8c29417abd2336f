"""Findings about ModRules that are valid, but probably do not do what their author intends.

Most findings concern behaviour of KubeMod that differs from its documentation. The dialect
follows the behaviour.
"""

import re
from collections.abc import Iterator
from typing import Final

from reconciler.api.meta import Object
from reconciler.dialects.base import annotations_of
from reconciler.dialects.finding import Finding, note, warning
from reconciler.dialects.kubemod.items import Item
from reconciler.dialects.kubemod.kinds import is_namespaced, kinds_of, tells_kinds
from reconciler.dialects.kubemod.names import KINDS_ANNOTATION
from reconciler.dialects.kubemod.patch import Edit
from reconciler.dialects.kubemod.rule import Rule
from reconciler.engine.values.regexes import compile_regex
from reconciler.languages.gval.syntax import (
    Array,
    Constant,
    Filter,
    Infix,
    Key,
    Node,
    Path,
    Prefix,
    SeveralStep,
    parts_of,
)
from reconciler.languages.gval.values import text_of

_LONG_NUMBER: Final = re.compile(r"[0-9]{7,}")
_MAPS_OF_TEXTS: Final = ((("metadata",), ("labels",)), (("metadata",), ("annotations",)))
"""The ends of the paths of maps whose values the API server requires to be texts."""
_QUOTED: Final = re.compile(r'".*"|\'.*\'', re.DOTALL)


def rule_findings(policy: Object, rule: Rule, *, in_system: bool) -> Iterator[Finding]:
    """Yield the findings about the text of a rule.

    Args:
        policy: The ModRule, for fields that the compiler ignores.
        rule: The same ModRule, as read.
        in_system: The rule is in the system namespace, and so applies to the whole cluster.
    """
    for item in rule.items:
        yield from _item_findings(item)
    for index, edit in enumerate(rule.patch.edits if rule.patch else ()):
        yield from _edit_findings(rule, edit, f"spec.patch[{index}]")
    yield from _scope_findings(policy, rule, in_system=in_system)


def _item_findings(item: Item) -> Iterator[Finding]:
    place = f"{item.location}.select"
    yield from _expression_findings(item.select.tree, place)
    for value in sorted(item.values or ()):
        if _QUOTED.fullmatch(value):
            yield warning(
                "quoted-value",
                item.location,
                f"{value} is compared with its quotes, which no result has",
                "write it without the inner quotes",
            )
        elif _LONG_NUMBER.fullmatch(value):
            yield warning(
                "long-number",
                item.location,
                f"a number of a million or more is compared as Go prints it, not as {value}",
                "compare in the expression, as select: $.spec.replicas == 1000000",
            )


def _expression_findings(tree: Node, place: str) -> Iterator[Finding]:
    for node in parts_of(tree):
        if _compares_a_list(node):
            yield warning(
                "list-compared",
                place,
                "a path with *, .., a filter or a slice returns a list, which is neither true nor"
                " false and equals no single value",
                "write length(...) > 0, or compare the elements in a filter: [? @ == ...]",
            )
            continue
        match node:
            case Infix("!=" | "=~" | "!~" as sign) if _holds_for_nothing(node):
                yield warning(
                    "undefined-differs",
                    place,
                    f"{sign} is true if its path does not exist",
                    "add && isDefined(...) to exclude missing fields",
                )
            case Filter(Path()):
                yield warning(
                    "existence-filter",
                    place,
                    "the filter keeps every element without the field as well",
                    "write [? isDefined(@.field)]",
                )
            case Path(False, steps) if node is tree and steps:
                yield warning(
                    "no-element",
                    place,
                    "@ has no value outside of a filter",
                    "write $ for the object",
                )


def _compares_a_list(node: Node | Filter) -> bool:
    """Return whether the results of a path are taken for a condition, or for a single value."""
    match node:
        case Filter(operand) | Prefix("!", operand) | Infix("in", operand, Array()):
            return _is_list(operand)
        case Infix("&&" | "||", left, right):
            return _is_list(left) or _is_list(right)
        case Infix("==" | "!=", left, right):
            sides = (left, right)
            return any(map(_is_list, sides)) and any(isinstance(one, Constant) for one in sides)
        case _:
            return False


def _is_list(node: Node) -> bool:
    return isinstance(node, Path) and any(isinstance(step, SeveralStep) for step in node.steps)


def _holds_for_nothing(node: Infix) -> bool:
    """Return whether a comparison of a path with a literal is true if the path does not exist.

    A path without steps always exists.
    """
    match node:
        case Infix("!=", Path(_, steps), Constant()) | Infix("!=", Constant(), Path(_, steps)):
            return bool(steps)
        case Infix("=~" | "!~" as sign, Path(_, steps), Constant(pattern)):
            # The text of what is undefined is empty.
            found = compile_regex(text_of(pattern)).search("") is not None
            return bool(steps) and found is (sign == "=~")
        case _:
            return False


def _edit_findings(rule: Rule, edit: Edit, location: str) -> Iterator[Finding]:
    if edit.select is not None:
        yield from _expression_findings(edit.select.tree, f"{location}.select")
    elif any("#" in str(piece) for part in edit.path.parts for piece in part):
        yield warning(
            "placeholder-without-select",
            f"{location}.path",
            "without select, # in the path is plain text",
            "add a select that captures the keys",
        )
    if edit.name != "remove" and not _is_text(edit):
        yield warning(
            "not-a-text",
            f"{location}.value",
            "labels and annotations are texts, and this value is read as another type",
            "quote it inside of the text, as value: '\"true\"'",
        )
    if edit.name == "add" and edit.path.ends_a_list and not _is_guarded(rule, edit):
        yield warning(
            "append",
            location,
            "it appends to a list each time the object is written",
            "add an item to match, with negate: true, that checks whether the element exists",
        )


def _is_text(edit: Edit) -> bool:
    """Return whether what a label or an annotation is set to may be a text; null is an empty one.

    The value of a template depends on the object.
    """
    value, parts = edit.value.constant, edit.path.parts
    if parts[-3:-1] in _MAPS_OF_TEXTS:
        return isinstance(value, str | None)
    if parts[-2:] in _MAPS_OF_TEXTS and isinstance(value, dict):
        return all(isinstance(text, str | None) for text in value.values())
    return True


def _is_guarded(rule: Rule, edit: Edit) -> bool:
    """Return whether an item of the rule, or the edit's select, reads the list that grows."""
    names = [part[0] for part in edit.path.parts[:-1] if part and not str(part[0]).isdecimal()]
    if not names:
        return True  # No object is a list: there the path names a field.
    trees = [item.select.tree for item in rule.items]
    if edit.select is not None:
        trees.append(edit.select.tree)
    keys = (node.key for tree in trees for node in parts_of(tree) if isinstance(node, Key))
    return any(key == Constant(names[-1]) for key in keys)


def _scope_findings(policy: Object, rule: Rule, *, in_system: bool) -> Iterator[Finding]:
    spec = policy["spec"]
    if spec.get("targetNamespaceRegex") and not in_system:
        yield warning(
            "no-system-namespace",
            "spec.targetNamespaceRegex",
            "outside of kubemod-system it is ignored: the rule is for its own namespace",
            "move the rule to kubemod-system, or remove the field",
        )
    if rule.patch and rule.operations == ("DELETE",):
        yield warning(
            "patch-on-delete",
            "spec.admissionOperations",
            "a deleted object is not changed",
            "make the type Reject, or list CREATE and UPDATE",
        )
    annotations = annotations_of(policy)
    selectors = kinds_of(rule.items, str(annotations.get(KINDS_ANNOTATION) or ""))
    if not selectors:
        yield _no_kind(rule, annotated=KINDS_ANNOTATION in annotations)
    elif not tells_kinds(rule.items) and KINDS_ANNOTATION not in annotations:
        yield note(
            "default-kinds",
            "spec.match",
            "no item names the kinds, so the rule applies only to KubeMod's default kinds",
            f"add select: $.kind with matchValue, or the annotation {KINDS_ANNOTATION}",
        )
    if in_system and rule.pattern is None and selectors and all(map(is_namespaced, selectors)):
        yield warning(
            "no-target-namespace",
            "spec",
            "without targetNamespaceRegex it applies to cluster-scoped objects only;"
            " its kinds are namespaced",
            'add targetNamespaceRegex: ".*" for all namespaces',
        )


def _no_kind(rule: Rule, *, annotated: bool) -> Finding:
    if tells_kinds(rule.items):
        text = "the items exclude one another's kinds, so that the rule is for none"
        return warning("no-kind", "spec.match", text)
    known = "the kinds of the annotation" if annotated else "KubeMod's default kinds"
    return warning(
        "no-kind",
        "spec.match",
        f"the items accept none of {known}, so that the rule is for no kind",
        f"name its kinds in the annotation {KINDS_ANNOTATION}",
    )
