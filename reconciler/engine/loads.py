"""Data that an evaluation needs from outside: it raises `NeedsLoad`, and the caller loads it.

The caller of the engine reads the data through a port, adds it to the context's loads and
evaluates again. So the engine does no I/O, and data that no expression reads is never fetched.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import EvaluationError, RetrofitError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapLoad:
    """Asks for a ConfigMap; the answer is ``{data, metadata}``."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLoad:
    """Asks for an object by its kind; the answer is the object, or None where labels match none.

    Attributes:
        kind: One kind, no pattern and no subresource.
        namespace: Ignored for a cluster-scoped kind. Empty with labels: all namespaces.
        name: Empty where labels select the object.
        labels: A selector in the API server's syntax, for the first match in the order of
            namespace and name; empty where the object is named.
        confined: The kind must be namespaced.
    """

    api_version: str
    kind: str
    namespace: str
    name: str = ""
    labels: str = ""
    confined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLoad:
    """Asks the API server; the answer is the decoded body.

    Attributes:
        body: JSON text of a POST, else empty; must never be logged.
        made_of_values: The path's group or resource comes from the value of a variable.
    """

    method: str
    path: str
    body: str = field(default="", repr=False)
    made_of_values: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class SecretName:
    """Names a Secret that the loader reads; no evaluation sees its content."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """The source of a token for calls of a service; no field of it may be logged.

    The answer to a POST with user and password is ``{token}``, optionally with ``expireAt``, its
    expiry in milliseconds since 1970.

    Attributes:
        url: The token endpoint; empty: the Secret holds the token itself, as ``token``.
        seconds: The lifetime of a token whose answer has no ``expireAt``.
        secret: Holds ``username`` and ``password``, or the token; None: the fields hold them.
    """

    url: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    seconds: float = 0.0
    secret: SecretName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """Asks an HTTP service; the answer is the decoded body.

    Attributes:
        headers: Pairs in the order of the policy; must never be logged, nor url and body.
        namespace: The only one whose Services may be called; empty: any.
        ca_bundle: CA certificates in PEM that verify the service; empty: the system's.
        token: The source of the call's token; None: the call has no token.
    """

    method: str
    url: str = field(repr=False)
    body: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    namespace: str = ""
    ca_bundle: str = field(default="", repr=False)
    token: TokenSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLoad:
    """Asks for the data of a GlobalContextEntry, or of one of its projections."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CueLoad:
    """Asks for the result of a CUE program; the answer is the decoded value of one of its fields.

    Attributes:
        data: JSON text of its input.
        output: The field; the answer is None where the result does not have it.
        tenant: The namespace of the object; programs of different tenants run in turns.
    """

    source: str = field(repr=False)
    data: str = field(repr=False)
    output: str
    tenant: str = field(default="", compare=False, repr=False)


Load = CueLoad | ConfigMapLoad | ObjectLoad | ApiLoad | ServiceLoad | GlobalLoad


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """The answer to a load that failed; the texts are for people.

    Attributes:
        bare: The message without values of objects.
    """

    message: str
    bare: str = "it cannot be read"


class NeedsLoad(RetrofitError):
    """Evaluation cannot continue before data was read from outside.

    Attributes:
        loads: The loads without duplicates; none depends on the answer to another.
    """

    def __init__(self, *loads: Load) -> None:
        self.loads = tuple(dict.fromkeys(loads))
        super().__init__(f"not read yet: {', '.join(map(repr, self.loads))}")


def answer_to(load: Load, loads: Mapping[Hashable, Any], failing: str) -> Any:
    """Return the answer to a load.

    Args:
        loads: The answers so far.
        failing: What fails without the answer, for the message.

    Raises:
        NeedsLoad: There is no answer yet.
        EvaluationError: The load failed.
    """
    try:
        found = loads[load]
    except KeyError:
        raise NeedsLoad(load) from None
    if isinstance(found, LoadFailure):
        raise EvaluationError(f"{failing}: {found.message}").bare(found.bare)
    return found
