"""The objects of a binding as it keeps them: with the results of its jq filter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import Object, ref_of
from reconciler.errors import EvaluationError
from reconciler.hooks.bindings import KubernetesBinding
from reconciler.hooks.monitor import ObservedObject, observe
from reconciler.services.ports.jq import Jq


@dataclass(slots=True, kw_only=True)
class ObjectFilter:
    """Applies the filter of a binding to objects, and reports those for which it fails.

    Attributes:
        report: Called with a text on all objects that are left out; empty if there are none.
    """

    binding: KubernetesBinding
    jq: Jq
    report: Callable[[str], None]
    _failing: dict[tuple[str, str], str] = field(default_factory=dict)

    async def observed(self, objects: Sequence[Object]) -> list[tuple[Object, ObservedObject]]:
        """Return the selected objects, except those that cannot be filtered or compared."""
        found = [obj for obj in objects if self._accepts(obj)]
        results: Sequence[Sequence[Any] | EvaluationError | None] = [None] * len(found)
        if self.binding.jq_filter and found:
            results = await self.jq.evaluate(self.binding.jq_filter, found)
        seen = []
        for obj, result in zip(found, results, strict=True):
            try:
                seen.append((obj, observe(self.binding, obj, result)))
                self._failing.pop(_key(obj), None)
            except EvaluationError as error:
                self._failing[_key(obj)] = (
                    f"{ref_of(obj)}, which is left out: {error.without_values}"
                )
        self._report()
        return seen

    def forget(self, objects: Sequence[Object] | None = None) -> None:
        """Forget failures at these objects, which are deleted; None for all."""
        gone = list(self._failing) if objects is None else map(_key, objects)
        for key in gone:
            self._failing.pop(key, None)
        self._report()

    def _report(self) -> None:
        first = next(iter(self._failing.values()), "")
        more = f" (and {len(self._failing) - 1} more)" if len(self._failing) > 1 else ""
        problem = "jqFilter fails at" if self.binding.jq_filter else "cannot compare"
        self.report(f"{self.binding.name}: {problem} {first}{more}" if first else "")

    def _accepts(self, obj: Object) -> bool:
        names = self.binding.selection.names
        return not names or (obj.get("metadata") or {}).get("name") in names


def _key(obj: Object) -> tuple[str, str]:
    ref = ref_of(obj)
    return ref.namespace, ref.name
