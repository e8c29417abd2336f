"""Recognizes and converts requests that a Kyverno left behind.

They are ``kyverno.io/v2`` UpdateRequests too, but hold the whole admission request with both
objects, name no source and carry none of kube-retrofit's labels.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.api.meta import PREFIX, Object, resource_version
from reconciler.api.requestwire import HOOK_WORK, RULE_WORK, parse_request
from reconciler.api.shape import object_fault
from reconciler.api.updaterequest import RequestSpec, Source, TriggerRecord, UpdateRequest
from reconciler.requests.draft import READ_LATER

HOOK_SOURCES = frozenset({Source.WATCH, Source.SCHEDULE, Source.STARTUP})
_OBJECTS = ("object", "oldObject")
# These are kept elsewhere in a request, or expressions have no use for them.
_NOT_INFO = frozenset({"object", "oldObject", "userInfo", "options"})


def is_ours(obj: Mapping[str, Any]) -> bool:
    """Return whether a stored request was created by kube-retrofit, or by a user for it."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    source = (obj.get("spec") or {}).get("source")
    return bool(source) or any(name.startswith(PREFIX) for name in labels)


def read_request(obj: Mapping[str, Any], *, adopt: bool) -> UpdateRequest | None:
    """Return a stored request to run a rule, None for one that is skipped.

    Args:
        obj: As stored; requests for other work are always skipped.
        adopt: Include the requests of a Kyverno.
    """
    if _work(obj) != RULE_WORK:
        return None
    if is_ours(obj):
        return parse_request(obj)
    return _adopted(obj) if adopt else None


def read_hook_request(obj: Mapping[str, Any]) -> UpdateRequest | None:
    """Return a stored request to run a hook, None for any other.

    Requests with a manual source are excluded: the input of a hook is recorded by a program.
    """
    if _work(obj) != HOOK_WORK:
        return None
    request = parse_request(obj)
    return request if request.spec.queue and request.spec.source in HOOK_SOURCES else None


def _work(obj: Mapping[str, Any]) -> Any:
    return (obj.get("spec") or {}).get("requestType", RULE_WORK)


def _adopted(obj: Mapping[str, Any]) -> UpdateRequest:
    request = parse_request(obj)
    context = (obj.get("spec") or {}).get("context") or {}
    carried = _admission_request(context.get("admissionRequestInfo") or {})
    spec = _spec(request.spec, carried, context.get("userInfo") or {})
    # A request that a Kyverno ended counts as ended regularly.
    return replace(request, spec=spec, ended_by="")


def _spec(spec: RequestSpec, carried: Object, user: Mapping[str, Any]) -> RequestSpec:
    if not carried:
        # Without an admission request, its cause was a change of the policy.
        return replace(spec, source=Source.POLICY_CHANGE, user={}, request={}, operation="")
    given = {name: carried.get(name) or {} for name in _OBJECTS}
    # Malformed objects are kept as they are, so that the attempt reports the fault.
    malformed = {name: item for name, item in given.items() if object_fault(item, name)}
    new, old = ({} if name in malformed else given[name] for name in _OBJECTS)
    operation = str(carried.get("operation", ""))
    subresource = str(carried.get("subResource") or "")
    kept: Object = {}
    if operation == "DELETE":
        kept["object"] = old
    elif subresource not in READ_LATER and new:
        kept["object"] = new
    if old and operation == "UPDATE":
        kept["oldObject"] = old
    kept |= malformed
    return replace(
        spec,
        source=Source.ADMISSION,
        operation=operation,
        user=_user(user),
        request={key: value for key, value in carried.items() if key not in _NOT_INFO},
        trigger=TriggerRecord(
            resource_version=resource_version(old),
            unchanged=_are_same(new, old),
            terminating=bool((old.get("metadata") or {}).get("deletionTimestamp")),
            subresource=subresource,
        ),
        recorded=kept or None,
    )


def _are_same(new: Object, old: Object) -> bool:
    # Python treats 1, 1.0 and True as equal; the API server does not.
    try:
        return json.dumps(new, sort_keys=True) == json.dumps(old, sort_keys=True)
    except RecursionError:
        return False


def _user(user: Mapping[str, Any]) -> Object:
    info = user.get("userInfo") or {}
    if not info:
        return {}
    # Kyverno has looked up the roles, and omits empty lists.
    roles, cluster_roles = user.get("roles") or [], user.get("clusterRoles") or []
    return {"userInfo": dict(info), "roles": list(roles), "clusterRoles": list(cluster_roles)}


def _admission_request(info: Mapping[str, Any]) -> Object:
    """Return the admission request, which early Kyverno versions stored as a string."""
    raw = info.get("admissionRequest")
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            raw = None
        except RecursionError:
            # As an object it is malformed, which the attempt reports.
            raw = {"object": raw}
    return raw if isinstance(raw, dict) else {}
