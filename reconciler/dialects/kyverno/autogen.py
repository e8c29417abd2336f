"""Generation of rules for Pod controllers from rules for Pods.

As in Kyverno, the decision whether rules are generated is made for the whole policy. Rules with
targets are never expanded: the copy would change controllers that the author has not named.
"""

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

ANNOTATION: Final = "pod-policies.kyverno.io/autogen-controllers"

_CONTROLLERS: Final = {
    "DaemonSet": "apps/v1/DaemonSet",
    "Deployment": "apps/v1/Deployment",
    "Job": "batch/v1/Job",
    "ReplicaSet": "apps/v1/ReplicaSet",
    "ReplicationController": "v1/ReplicationController",
    "StatefulSet": "apps/v1/StatefulSet",
}
_CRON_JOB: Final = "CronJob"
_BARE_NAMES: Final = {"Pod", _CRON_JOB, *_CONTROLLERS}
_TEMPLATE: Final = ("spec", "template")
_CRON_TEMPLATE: Final = ("spec", "jobTemplate", "spec", "template")
MAX_NAME: Final = 63
PREFIXES: Final = ("autogen-", "autogen-cronjob-")
"""Name prefixes of the generated rules: for controllers, for CronJobs."""

_NARROWING: Final = ("name", "names", "selector", "annotations")


def generated(
    rules: Mapping[int, Mapping[str, Any]], annotation: str | None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the generated rules for controllers, each with the position of its rule for Pods.

    Args:
        rules: The rules of the policy, by position.
        annotation: Controllers, separated by commas; ``none`` for none, None for all.
    """
    wanted = {*_CONTROLLERS, _CRON_JOB}
    if annotation is not None:
        wanted &= {name.strip() for name in annotation.split(",")}
    if not wanted or not _possible(rules.values()):
        return
    kinds = [text for name, text in _CONTROLLERS.items() if name in wanted]
    taken = {str(rule["name"]) for rule in rules.values()}
    for index, rule in rules.items():
        if not _for_pods(rule):
            continue
        if kinds:
            name = _named(PREFIXES[0], rule["name"], taken)
            yield index, _expanded(rule, name, kinds, _TEMPLATE)
        if _CRON_JOB in wanted:
            name = _named(PREFIXES[1], rule["name"], taken)
            yield index, _expanded(rule, name, ["batch/v1/CronJob"], _CRON_TEMPLATE)


def shown(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a generated rule in the form that Kyverno writes into the status of the policy."""
    parts = {
        part: {**rule[part], "resources": rule[part].get("resources") or {}}
        for part in ("match", "exclude")
        if isinstance(rule.get(part), Mapping)
    }
    return {"skipBackgroundRequests": True, **rule, **parts}


def _possible(rules: Collection[Mapping[str, Any]]) -> bool:
    filters = [
        item for rule in rules for part in ("match", "exclude") for item in _resources(rule, part)
    ]
    named = {kind for item in filters for kind in _kinds(item)}
    # As in Kyverno, v1/Pod alone is not enough.
    if any(map(_narrow, filters)) or _BARE_NAMES.isdisjoint(named):
        return False
    return not any(
        rule.get("generate") is not None or _has_operations(rule.get("mutate")) for rule in rules
    )


def _has_operations(mutate: Any) -> bool:
    if not isinstance(mutate, Mapping):
        return False
    blocks = mutate.get("foreach")
    return bool(mutate.get("patchesJson6902")) or any(
        isinstance(block, Mapping) and bool(block.get("patchesJson6902"))
        for block in (blocks if isinstance(blocks, list) else ())
    )


def _narrow(resources: Mapping[str, Any]) -> bool:
    kinds = _kinds(resources)
    return any(resources.get(field) for field in _NARROWING) or (
        len(kinds) > 1 and any(map(_is_pod, kinds))
    )


def _for_pods(rule: Mapping[str, Any]) -> bool:
    mutate = rule.get("mutate")
    if not isinstance(mutate, Mapping) or mutate.get("targets") is not None:
        return False
    matched = [kind for item in _resources(rule, "match") for kind in _kinds(item)]
    excluded = [kind for item in _resources(rule, "exclude") for kind in _kinds(item)]
    return any(map(_is_pod, matched)) and (not excluded or any(map(_is_pod, excluded)))


def _resources(rule: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    block = rule.get(part)
    if not isinstance(block, Mapping):
        return
    filters = [block]
    for form in ("any", "all"):
        if isinstance(block.get(form), list):
            filters += [item for item in block[form] if isinstance(item, Mapping)]
    for item in filters:
        if isinstance(item.get("resources"), Mapping):
            yield item["resources"]


def _kinds(resources: Mapping[str, Any]) -> list[str]:
    kinds = resources.get("kinds")
    return [kind for kind in kinds if isinstance(kind, str)] if isinstance(kinds, list) else []


def _is_pod(kind: str) -> bool:
    return kind.rpartition("/")[2] == "Pod"


def _named(prefix: str, rule: str, taken: set[str]) -> str:
    """Return the name of a generated rule, and add it to those that are taken.

    It is Kyverno's, unless another rule has it: requests refer to a rule by its name.
    """
    name = f"{prefix}{rule}"[:MAX_NAME]
    if name in taken:
        tail = blake2b(f"{prefix} {rule}".encode(), digest_size=4).hexdigest()
        name = f"{name[: MAX_NAME - len(tail) - 1]}-{tail}"
    taken.add(name)
    return name


def _expanded(
    rule: Mapping[str, Any], name: str, kinds: list[str], path: tuple[str, ...]
) -> Mapping[str, Any]:
    mutate = {
        name: _patched(value, path)
        for name, value in rule["mutate"].items()
        if name in ("patchStrategicMerge", "foreach")
    }
    made = {**rule, "mutate": mutate}
    for part in ("match", "exclude"):
        if part in rule:
            # As in Kyverno, only the rule for CronJobs forgets the other filters' kinds.
            made[part] = _with_kinds(rule[part], kinds, every=path == _CRON_TEMPLATE)
    moved = ".".join(path)
    replaced: dict[str, Any] = _replaced(made, moved)
    return {**replaced, "name": name}


def _patched(value: Any, path: tuple[str, ...]) -> Any:
    if not isinstance(value, list):
        return _wrapped(value, path)
    # A block keeps the fields that Kyverno keeps, which excludes its order and nested blocks.
    kept = ("list", "context", "preconditions")
    return [
        {name: block[name] for name in kept if name in block}
        | {"patchStrategicMerge": _wrapped(block.get("patchStrategicMerge"), path)}
        for block in value
        if isinstance(block, Mapping)
    ]


def _wrapped(value: Any, path: tuple[str, ...]) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _with_kinds(block: Any, kinds: list[str], *, every: bool) -> Any:
    if isinstance(block, list):
        return [_with_kinds(item, kinds, every=every) for item in block]
    if not isinstance(block, Mapping):
        return block
    made = {
        name: _with_kinds(value, kinds, every=every)
        if name in ("any", "all", "resources")
        else value
        for name, value in block.items()
    }
    named = _kinds(block)
    if named and (every or any(map(_is_pod, named))):
        made["kinds"] = kinds
    return made


def _replaced(value: Any, moved: str) -> Any:
    if isinstance(value, str):
        for root in ("request.object", "request.oldObject"):
            for part in ("spec", "metadata"):
                value = value.replace(f"{root}.{part}", f"{root}.{moved}.{part}")
        return value
    if isinstance(value, list):
        return [_replaced(item, moved) for item in value]
    if isinstance(value, Mapping):
        return {_replaced(key, moved): _replaced(item, moved) for key, item in value.items()}
    return value
