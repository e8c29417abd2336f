"""The in-memory index of honoured PolicyExceptions by policy, used by both servers."""

import asyncio
import bisect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

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
        namespaces: Comma-separated patterns of the namespaces whose exceptions are honoured.
    """

    enabled: bool = False
    namespaces: str = ""

    def objection(self, namespace: str) -> str:
        """Return why exceptions in a namespace have no effect, empty if they are honoured."""
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
    """The result of a change of an exception.

    Attributes:
        policies: Keys of the policies that the change affects.
        problem: Why the exception is not honoured, empty if it is.
    """

    policies: tuple[str, ...] = ()
    problem: str = ""


_NOTHING: Final = (None, "")


async def at_once() -> None:
    """Return at once, for an index that is always up to date."""


@dataclass(slots=True, kw_only=True)
class ExceptionIndex:
    """Compiled exceptions by the policies that they name.

    Attributes:
        caught_up: Waits until the index matches the stored objects; raises `ClusterError`.
    """

    exception_settings: ExceptionSettings = field(default_factory=ExceptionSettings)
    caught_up: Callable[[], Awaitable[None]] = at_once
    _known: dict[str, PolicyException] = field(default_factory=dict)
    _by_policy: dict[str, tuple[PolicyException, ...]] = field(default_factory=dict)
    _prepared: tuple[Object | None, PolicyException | str] = _NOTHING

    @classmethod
    def holding(cls, exceptions: Iterable[PolicyException]) -> "ExceptionIndex":
        """Return an index of a fixed set of honoured exceptions."""
        index = cls()
        for item in exceptions:
            index._replace(index._known.get(item.key), item)
            index._known[item.key] = item
        return index

    async def prepare(self, obj: Object) -> None:
        """Compile an exception in a worker thread, before its change is applied."""
        self._prepared = obj, await asyncio.to_thread(self._compile, obj)

    def on_event(self, change: Change, obj: Object) -> Taken:
        """Apply a change of an exception; one that is not honoured is left out of the index."""
        known = self._known.pop(exception_key(obj), None)
        new: PolicyException | None = None
        problem = ""
        if change != "DELETED":
            source, found = self._prepared
            if source is not obj:
                found = self._compile(obj)
            self._prepared = _NOTHING
            if isinstance(found, str):
                problem = found
            else:
                new = self._known[found.key] = found
        return Taken(policies=tuple(sorted(self._replace(known, new))), problem=problem)

    def _compile(self, obj: Object) -> PolicyException | str:
        """Return an exception, or why it is not honoured."""
        try:
            objection = self.exception_settings.objection(obj["metadata"].get("namespace", ""))
            return objection or compile_exception(obj)
        except InvalidPolicy as error:
            return str(error)

    def of(self, program: Program) -> tuple[PolicyException, ...]:
        """Return the exceptions that name a rule, by key."""
        if not self._by_policy:
            return ()
        found = self._by_policy.get(program.origin.policy.key, ())
        return tuple(item for item in found if item.concerns(program))

    def _replace(self, old: PolicyException | None, new: PolicyException | None) -> set[str]:
        """Put an exception in place of another; return the keys of the policies that they name."""
        touched = {policy for item in (old, new) if item is not None for policy in item.policies}
        for policy in touched:
            items = [item for item in self._by_policy.pop(policy, ()) if item is not old]
            if new is not None and policy in new.policies:
                bisect.insort(items, new, key=lambda item: item.key)
            if items:
                self._by_policy[policy] = tuple(items)
        return touched


def exception_key(obj: Object) -> str:
    """Return ``namespace/name``."""
    meta = obj["metadata"]
    return f"{meta.get('namespace') or 'default'}/{meta.get('name')}"
