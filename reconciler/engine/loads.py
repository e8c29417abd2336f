"""What an evaluation needs from outside: asked for by raising `NeedsLoad`, read by the caller.

Whoever called the engine reads it through a port, adds it to the context's loads and evaluates
again, so the engine does no I/O and what nobody names is never fetched.
"""

from dataclasses import dataclass, field

from reconciler.errors import RetrofitError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapLoad:
    """Asks for a ConfigMap; the answer is ``{data, metadata}``."""

    namespace: str
    name: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """Asks an HTTP service; the answer is the decoded body.

    Attributes:
        headers: Pairs in the order of the policy; like url and body never to be logged.
        namespace: The only one whose Services may be called; empty: any.
        ca_bundle: Certificates in PEM that the service is checked against; empty: the usual ones.
    """

    method: str
    url: str = field(repr=False)
    body: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    namespace: str = ""
    ca_bundle: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLoad:
    """Asks for the data of a GlobalContextEntry, or of one of its projections."""

    name: str


Load = ConfigMapLoad | ApiLoad | ServiceLoad | GlobalLoad


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
