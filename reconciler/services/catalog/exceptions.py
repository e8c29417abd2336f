"""The PolicyExceptions in memory, of both servers: those that are honoured, by policy."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from reconciler.api.meta import Object
from reconciler.dialects.registry import compile_exception
from reconciler.engine.exceptions import PolicyException
from reconciler.engine.program import Program
from reconciler.engine.values.wildcard import compile_any
from reconciler.errors import InvalidPolicy
from reconciler.services.ports.policies import Change

DISABLED = (
    "PolicyExceptions are not honoured in this cluster: start retrofit-admission and"
    " retrofit-controller with --enable-policy-exception"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionSettings:
    """Which exceptions are honoured.

    Attributes:
        enabled: None is without it.
        namespaces: Patterns, separated by commas, of those where an exception counts.
    """

    enabled: bool = False
    namespaces: str = ""

    def objection(self, namespace: str) -> str:
        """Return why an exception in a namespace has no effect, empty where it has."""
        if not self.enabled:
            return DISABLED
        names = [name.strip() for name in self.namespaces.split(",")]
        if compile_any(name for name in names if name)(namespace):
            return ""
        return (
            f"a PolicyException in namespace {namespace} is not honoured: --exception-namespace"
            f" allows {self.namespaces}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a change of an exception means.

    Attributes:
        policies: Keys of those that it touches.
        problem: Why the exception is not honoured; empty where it is.
    """

    policies: tuple[str, ...] = ()
    problem: str = ""


async def at_once() -> None:
    """Nothing has to be waited for."""


@dataclass(slots=True, kw_only=True)
class ExceptionIndex:
    """Compiled exceptions by the policies that they name.

    Attributes:
        exception_settings: Which are taken in.
        caught_up: Returns when what is known is what is stored; raises `ClusterError`.
    """

    exception_settings: ExceptionSettings = field(default_factory=ExceptionSettings)
    caught_up: Callable[[], Awaitable[None]] = at_once
    _known: dict[str, PolicyException] = field(default_factory=dict)
    _by_policy: dict[str, tuple[PolicyException, ...]] = field(default_factory=dict)

    @classmethod
    def holding(cls, exceptions: Iterable[PolicyException]) -> "ExceptionIndex":
        """Return an index of exceptions that are honoured and do not change."""
        index = cls(_known={item.key: item for item in exceptions})
        index._rebuild()
        return index

    def on_event(self, change: Change, obj: Object) -> Taken:
        """Take in one change of an exception; what is not honoured holds for nothing."""
        known = self._known.pop(exception_key(obj), None)
        touched = frozenset[str]() if known is None else known.policies
        problem = ""
        if change != "DELETED":
            try:
                problem = self.exception_settings.objection(obj["metadata"].get("namespace", ""))
                compiled = None if problem else compile_exception(obj)
            except InvalidPolicy as error:
                compiled, problem = None, str(error)
            if compiled is not None:
                self._known[compiled.key] = compiled
                touched |= compiled.policies
        self._rebuild()
        return Taken(policies=tuple(sorted(touched)), problem=problem)

    def of(self, program: Program) -> tuple[PolicyException, ...]:
        """Return the exceptions that name a rule, by key."""
        if not self._by_policy:
            return ()
        found = self._by_policy.get(program.origin.policy.key, ())
        return tuple(item for item in found if item.concerns(program))

    def _rebuild(self) -> None:
        by_policy: dict[str, list[PolicyException]] = {}
        for _, item in sorted(self._known.items()):
            for policy in item.policies:
                by_policy.setdefault(policy, []).append(item)
        self._by_policy = {policy: tuple(items) for policy, items in by_policy.items()}


def exception_key(obj: Object) -> str:
    """Return ``namespace/name``."""
    meta = obj["metadata"]
    return f"{meta.get('namespace') or 'default'}/{meta.get('name')}"
