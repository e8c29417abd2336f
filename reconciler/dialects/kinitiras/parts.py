"""The remaining parts of the programs; see `reconciler.engine.ports`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.api.rights import Need, ReadNeed
from reconciler.dialects.kinitiras.condition import Refuses
from reconciler.dialects.kinitiras.cue import CueProgram
from reconciler.dialects.kinitiras.origin import OriginEdit
from reconciler.dialects.kinitiras.template import TemplateEdit
from reconciler.dialects.kinitiras.values import Source
from reconciler.engine import reading
from reconciler.engine.allowance import Allowance
from reconciler.engine.context import Context
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import KeyTable
from reconciler.engine.patch.paths import APPEND, parse_index
from reconciler.engine.patch.rfc6902 import EVANPHX4, Operation, apply_operations
from reconciler.errors import EvaluationError

_STEPS: Final = 256
"""The steps of the allowance that an operation costs beside what it copies."""


@dataclass(frozen=True, slots=True)
class Names:
    """The binding of a policy, which adds no names; see `reconciler.engine.ports.Binding`.

    Attributes:
        sources: The sources of the rule's values.
    """

    sources: tuple[Source, ...]

    @property
    def loads(self) -> bool:
        """Whether a value is read from outside of the request."""
        return any(source.loads for source in self.sources)

    def bind(self, context: Context) -> Context:
        """Return the context as it is."""
        return context

    def read_rights(self) -> Iterator[Need | ReadNeed]:
        """Yield the rights that reading the values requires."""
        for source in self.sources:
            yield from source.needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overriders:
    """The changes of a rule, in the order in which they are applied.

    The original ignores ``plaintext`` beside ``origin``, unlike its documentation.
    """

    template: TemplateEdit | None = None
    programs: tuple[CueProgram, ...] = ()
    origin: tuple[OriginEdit, ...] = ()
    plaintext: tuple[Operation, ...] = ()
    merge_keys: bool = False

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the values."""
        source = self.template and self.template.source
        return (*((source,) if source else ()), *self.programs)

    @property
    def appends(self) -> bool:
        """Whether a change may add to a list by position."""
        # The operations of a program are not known before it is evaluated.
        return bool(self.programs) or any(
            item.name == "add" and bool(item.path) and _may_insert(item.path[-1])
            for item in self.plaintext
        )

    @property
    def convergence(self) -> Convergence:
        """PROBED where operations may append, which only their effect on an object shows."""
        return Convergence.PROBED if self.plaintext or self.programs else Convergence.YES

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any]:
        """Return the object with all changes applied."""
        del index, keys
        changed: dict[str, Any] = dict(obj)
        if self.template is not None:
            made = tuple(self.template.operations(changed, context))
            changed = _patched(changed, made, context.allowance)
        for program in self.programs:
            changed = _patched(changed, program.patch(context, changed), context.allowance)
        for edit in self.origin:
            changed = _patched(changed, (edit.patch(changed),), context.allowance)
        return _patched(changed, self.plaintext, context.allowance)


def _may_insert(step: str) -> bool:
    return step == APPEND or parse_index(step) is not None


def _patched(
    obj: Mapping[str, Any], operations: tuple[Operation, ...], allowance: Allowance
) -> dict[str, Any]:
    allowance.spend(_STEPS * len(operations))
    # A program may have replaced the whole object.
    found = apply_operations(obj, operations, profile=EVANPHX4, allowance=allowance)
    if not isinstance(found, Mapping):
        raise EvaluationError(f"a patch leaves {reading.kind_of(found)} in place of the object")
    return dict(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The message of a rule that refuses; see `reconciler.engine.ports.Refusal`."""

    policy: str
    refusal: Refuses
    heading: str = ""

    def message(self, context: Context) -> str:
        """Return the message: which policy refuses the request, and why."""
        return f"{self.policy}: {self.refusal.reason(context)}"
