"""The differences in behaviour of the rules of a policy after a move."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.meta import PREFIX, Object
from reconciler.cli.lint.command import namespaced
from reconciler.cli.migrate.moving import Move
from reconciler.dialects.finding import Finding, Level
from reconciler.services.authoring.lint import lint_policy

_RULES: Final = "spec.rules["


def differences(policy: Object, move: Move) -> Iterator[tuple[str, str, Level]]:
    """Yield each difference: the rule's name, empty for the whole policy, a text and a level.

    Args:
        policy: The policy after the move.
    """
    found = () if move.target.stands_by else lint_policy(policy, scope=namespaced)
    counted = [item for item in found if item.level is not Level.NOTE]
    for text in _of_policy(policy, move):
        yield "", text, Level.NOTE
    for item in counted:
        if not item.location.startswith(_RULES):
            yield "", _said(item), item.level
    for index, rule in enumerate(_rules(policy)):
        name = str(rule.get("name", index))
        for text in _of_rule(rule, move):
            yield name, text, Level.NOTE
        for item in counted:
            if item.location.startswith(f"{_RULES}{index}]"):
                yield name, _said(item), item.level


def _of_policy(policy: Object, move: Move) -> Iterator[str]:
    annotations = (policy.get("metadata") or {}).get("annotations")
    named = annotations if isinstance(annotations, Mapping) else ()
    own = [name for name in named if str(name).startswith(PREFIX)]
    if own and move.target.stands_by:
        yield f"Kyverno ignores {', '.join(own)}; kube-retrofit in its place does not"


def _of_rule(rule: Mapping[str, Any], move: Move) -> Iterator[str]:
    target, mutate = move.target, rule.get("mutate")
    if not isinstance(mutate, Mapping):
        return
    if mutate.get("targets"):
        yield (
            f"works as ServiceAccount {target.namespace}/{target.background_account}, which gets"
            f" its rights by ClusterRoles with the label {target.background_label}"
        )
        if rule.get("skipBackgroundRequests") is not False:
            yield (
                f"will be triggered by the writes of {move.source.namespace}/"
                f"{move.source.background_account}, which is another program's account"
            )
    elif not target.stands_by:
        yield (
            "changes objects before Kyverno's own rules do: the API server calls webhook"
            " configurations in the order of their names"
        )
    if _mentions(rule, f"system:serviceaccount:{move.source.namespace}:"):
        yield (
            f"match or exclude names an account of namespace {move.source.namespace}: the programs"
            f" will work as accounts of namespace {target.namespace}"
        )


def _mentions(value: Any, text: str) -> bool:
    match value:
        case Mapping():
            return any(_mentions(item, text) for item in value.values())
        case list():
            return any(_mentions(item, text) for item in value)
        case str():
            return text in value
        case _:
            return False


def _rules(policy: Object) -> list[Mapping[str, Any]]:
    spec = policy.get("spec")
    rules = spec.get("rules") if isinstance(spec, Mapping) else None
    listed = rules if isinstance(rules, list) else []
    return [item if isinstance(item, Mapping) else {} for item in listed]


def _said(finding: Finding) -> str:
    place = f"{finding.location}: " if finding.location else ""
    cure = f"; {finding.cure}" if finding.cure else ""
    word = "is refused: " if finding.level is Level.ERROR else ""
    return f"{word}{place}{finding.text}{cure}"
