"""Parses the annotation that names a policy's ServiceAccount, in all policy languages."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import ANNOTATION_SERVICE_ACCOUNT
from reconciler.errors import InvalidPolicy
from reconciler.requests.limits import limits_of, place_of

PLACE: Final = place_of(ANNOTATION_SERVICE_ACCOUNT)

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")


def named_account(policy: Mapping[str, Any]) -> str | None:
    """Return the account annotation of a policy as written, None where it has none."""
    found = limits_of(policy).get(ANNOTATION_SERVICE_ACCOUNT)
    return None if found is None else str(found)


def parse_account(
    policy: Mapping[str, Any], *, reserved: AbstractSet[str]
) -> ServiceAccount | None:
    """Return the account as which a policy works, None for the account that policies share.

    Args:
        policy: The object. A namespaced policy may only name accounts of its own namespace.
        reserved: The namespaces of the programs, whose accounts no policy may use.

    Raises:
        InvalidPolicy: It names no account that it may work as; the error says what to write.
    """
    written = named_account(policy)
    if written is None:
        return None
    home = str((policy.get("metadata") or {}).get("namespace") or "")
    namespace, slash, name = written.strip().rpartition("/")
    if home:
        if slash and namespace != home:
            reason = (
                f"{written!r} is not an account of namespace {home}: a Policy works as an account"
                " of its own namespace; write its name alone"
            )
            raise InvalidPolicy(PLACE, reason)
        if slash:
            raise InvalidPolicy(PLACE, f"in a Policy write the name alone: {name}")
        namespace = home
    for part, form in ((namespace, _NAMESPACE), (name, _NAME)):
        if not form.fullmatch(part):
            form_of = "NAME" if home else "NAMESPACE/NAME"
            reason = f"{written!r} is not the name of a ServiceAccount; write it as {form_of}"
            raise InvalidPolicy(PLACE, reason)
    if namespace in reserved:
        reason = (
            f"namespace {namespace} belongs to kube-retrofit, and no policy may work as an account"
            " there; name another account, or remove the annotation"
        )
        raise InvalidPolicy(PLACE, reason)
    return ServiceAccount(namespace=namespace, name=name)
