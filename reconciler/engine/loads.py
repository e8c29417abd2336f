"""What an evaluation needs from outside: asked for by raising `NeedsLoad`, read by the caller.

Whoever called the engine reads it through a port, adds it to the context's loads and evaluates
again, so the engine does no I/O and what nobody names is never fetched.
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
    """Asks for an object by its kind; the answer is the object, or None where labels fit none.

    Attributes:
        kind: One kind, no pattern and no subresource.
        namespace: Means nothing for a kind that has none. Empty: all, where labels select.
        name: Empty where labels select it.
        labels: A selector as the API server takes it, of which the first object in the order of
            namespace and name is meant; empty where it is named.
        confined: Only a kind that has namespaces is meant.
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
        body: JSON text of a POST, else empty; never to be logged.
        made_of_values: Only values tell which resource the path is of.
    """

    method: str
    path: str
    body: str = field(default="", repr=False)
    made_of_values: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class SecretName:
    """Names a Secret; whoever reads a load reads it, and no evaluation sees what is in it."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where a token for calls of a service comes from; all of it is never to be logged.

    The answer to a POST with a user and a password is ``{token}``, with ``expireAt`` in
    milliseconds since 1970 where it says how long the token is good.

    Attributes:
        url: Who is asked; empty: the Secret holds the token itself, as ``token``.
        seconds: How long it is good where the answer does not say.
        secret: Holds ``username`` and ``password``, or the token; None: they stand here.
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
        headers: Pairs in the order of the policy; like url and body never to be logged.
        namespace: The only one whose Services may be called; empty: any.
        ca_bundle: Certificates in PEM that the service is checked against; empty: the usual ones.
        token: Where the token comes from that the call carries; None: it carries none.
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
    """Asks what a program in CUE gives; the answer is the decoded value of one of its fields.

    Attributes:
        source: The program.
        data: JSON text of what it is given.
        output: The field; None is the answer where there is no such.
    """

    source: str = field(repr=False)
    data: str = field(repr=False)
    output: str


Load = CueLoad | ConfigMapLoad | ObjectLoad | ApiLoad | ServiceLoad | GlobalLoad


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Stands in the loads where something could not be read; the texts are for people.

    Attributes:
        bare: The message without any value.
    """

    message: str
    bare: str = "it cannot be read"


class NeedsLoad(RetrofitError):
    """Evaluation cannot go on before something was read from outside.

    Attributes:
        loads: What it needs, none of it twice; none needs another to be read before it.
    """

    def __init__(self, *loads: Load) -> None:
        self.loads = tuple(dict.fromkeys(loads))
        super().__init__(f"not read yet: {', '.join(map(repr, self.loads))}")


def answer_to(load: Load, loads: Mapping[Hashable, Any], failing: str) -> Any:
    """Return what was read for a load.

    Args:
        load: What is asked for.
        loads: What was read so far.
        failing: What cannot be done without it, for the message.

    Raises:
        NeedsLoad: It has not been read yet.
        EvaluationError: It cannot be read.
    """
    try:
        found = loads[load]
    except KeyError:
        raise NeedsLoad(load) from None
    if isinstance(found, LoadFailure):
        raise EvaluationError(f"{failing}: {found.message}").bare(found.bare)
    return found
