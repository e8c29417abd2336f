"""What an API server refuses in every policy, whatever its language.

Only for policies: other objects of files were stored, or are made, by somebody else.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.template import place
from reconciler.dialects.registry import KNOWN_KINDS, compile_policy
from reconciler.engine.given import Given
from reconciler.engine.match.selectors import LABEL_KEY, LABEL_VALUE, SUBDOMAIN
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import ErrorList, InvalidPolicy

_OLDER: Final = (("kyverno.io/v1", "kyverno.io/v2beta1"),)
"""Versions in which the kinds of another one are served as well."""
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){SUBDOMAIN}")
_NAME_RULE: Final = "at most 253 of a-z, 0-9, - and ., with a letter or digit at both ends"
_KEY_RULE: Final = (
    "at most 63 letters, digits, -, _ and ., with a letter or digit at both ends;"
    " before a slash a domain may stand"
)
_VALUE_RULE: Final = "empty, or " + _KEY_RULE.partition(";")[0]


def compile_acceptable(
    policy: Object, *, given: Mapping[str, Given] | None = None
) -> CompiledPolicy:
    """Return a policy of a file, compiled as by `compile_policy`.

    Raises:
        InvalidPolicy: An API server or the programs refuse it.
    """
    with ErrorList() as errors:
        for error in (*_version(policy), *refused_metadata(policy)):
            errors.add(error)
    return compile_policy(policy, given=given)


def _version(policy: Object) -> Iterator[InvalidPolicy]:
    group = policy["apiVersion"].partition("/")[0]
    served = [
        kind.api_version
        for kind in KNOWN_KINDS
        if (kind.group, kind.kind) == (group, policy["kind"])
    ]
    served += [older for newer, older in _OLDER if newer in served]
    if policy["apiVersion"] not in served:
        known = " or ".join(served)
        reason = f"no cluster serves {policy['apiVersion']}; {policy['kind']} is of {known}"
        yield InvalidPolicy("apiVersion", reason)


def refused_metadata(obj: Object) -> Iterator[InvalidPolicy]:
    """Yield what an API server refuses in the metadata of an object that `checked` accepts."""
    meta = obj["metadata"]
    name = meta.get("name")
    if name and not _NAME.fullmatch(name):
        yield _refused("metadata.name", name, _NAME_RULE)
    labels = meta.get("labels") or {}
    for key, value in labels.items():
        at = place("metadata.labels", [key])
        if not LABEL_KEY.fullmatch(key):
            yield _refused(at, key, f"as a key, {_KEY_RULE}")
        if value and not LABEL_VALUE.fullmatch(value):
            yield _refused(at, value, _VALUE_RULE)
    for key in meta.get("annotations") or {}:
        if not LABEL_KEY.fullmatch(key.lower()):
            yield _refused(place("metadata.annotations", [key]), key, f"as a key, {_KEY_RULE}")


def _refused(location: str, found: Any, rule: str) -> InvalidPolicy:
    return InvalidPolicy(location, f"{found!r} is refused by every cluster: write {rule}")
