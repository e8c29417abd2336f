"""The interface of a policy language; the registry lists the implementations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from reconciler.api.meta import ANNOTATION_EXISTING, PREFIX, Kind, Object
from reconciler.dialects.finding import Finding, Guard, Scope
from reconciler.engine.context import Context
from reconciler.engine.given import Given
from reconciler.engine.outcome import Convergence
from reconciler.engine.patch import KeyTable
from reconciler.engine.program import FAIL, IGNORE, CompiledPolicy
from reconciler.engine.reading import kind_of
from reconciler.errors import InvalidPolicy

FAILURE_POLICY_ANNOTATION: Final = f"{PREFIX}failure-policy"
"""Sets ``Fail`` or ``Ignore`` on policies of a language that has no field for it."""

Compile = Callable[[Object, str], CompiledPolicy]
Lint = Callable[[Object, CompiledPolicy], Iterator[Finding]]

PLACE: Final = f"metadata.annotations[{ANNOTATION_EXISTING}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The system that a language comes from, and how to detect that it is at work in a cluster.

    Attributes:
        name: Its name in messages.
        kind: The kind of the webhook configuration that it creates.
        configuration: The name of that webhook configuration.
    """

    name: str
    kind: str
    configuration: str


class Dialect(Protocol):
    """A policy language; its code is pure and independent of all other languages."""

    @property
    def name(self) -> str:
        """The language's name, which its programs carry as their dialect."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its policies, in the API version that is watched."""

    @property
    def refusing(self) -> tuple[Kind, ...]:
        """Those of its kinds whose policies only refuse requests, and never change an object."""

    @property
    def optional(self) -> bool:
        """Whether controller and webhook run in a cluster that does not serve the kinds."""

    @property
    def original(self) -> Original | None:
        """The system that must not act on the same policies; None if detected elsewhere."""

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations that `compile` reads; changing one does not change the generation."""

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy's rules.

        Args:
            given: Values that the caller provides in place of context entries, by rule.

        Raises:
            InvalidPolicy: The policy cannot be compiled; it holds all errors with their locations.
        """

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return the policy with the rules that compile, and the errors in the rest.

        The policy is None where there is an error outside of its rules.
        """

    def lint(
        self,
        policy: Object,
        compiled: CompiledPolicy,
        *,
        scope: Scope,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        """Yield the findings that only this language can make from the text of a policy.

        Args:
            policy: The object as written.
            compiled: The same, compiled.
            scope: Returns whether a kind is namespaced.
            guard: Returns why a policy must not write a field or make a call.
            wrong: The errors of rules that do not compile; such rules have no further findings.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalDialect:
    """A `Dialect` whose policies compile as a whole, and which most clusters do not have.

    Its compiler is imported with the first policy: most commands and clusters never see one.

    Attributes:
        meaning: Imports the compiler; returns `compile`, which takes the language's name, and
            `lint`.
    """

    name: str
    kinds: tuple[Kind, ...]
    annotations: tuple[str, ...]
    original: Original | None
    meaning: Callable[[], tuple[Compile, Lint]] = field(repr=False)
    refusing: tuple[Kind, ...] = ()
    optional: bool = True

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy; ``given`` has no effect without context entries."""
        del given
        compiled, _ = self.meaning()
        return compiled(policy, self.name)

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return the compiled policy, or None and all errors in it."""
        try:
            return self.compile(policy), ()
        except InvalidPolicy as error:
            return None, (error, *error.others)

    def lint(
        self,
        policy: Object,
        compiled: CompiledPolicy,
        *,
        scope: Scope,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        """Yield the findings that the text of the policy shows."""
        del scope, guard, wrong
        _, found = self.meaning()
        return found(policy, compiled)


def annotations_of(policy: Object) -> Mapping[str, Any]:
    """Return the annotations of a policy.

    Raises:
        InvalidPolicy: They are not an object.
    """
    found = (policy.get("metadata") or {}).get("annotations") or {}
    if not isinstance(found, Mapping):
        raise InvalidPolicy("metadata.annotations", f"expected an object, got {kind_of(found)}")
    return found


def wants_existing(policy: Object) -> bool:
    """Return whether rules that change their trigger also run on existing objects.

    Raises:
        InvalidPolicy: The annotation is neither ``true`` nor ``false``.
    """
    value = annotations_of(policy).get(ANNOTATION_EXISTING, "false")
    if value not in ("true", "false"):
        raise InvalidPolicy(PLACE, f"{value!r} is neither true nor false")
    return bool(value == "true")


def failure_policy_of(policy: Object, *, default: str) -> str:
    """Return the failure policy of the annotation, which applies when the webhook is unavailable.

    Raises:
        InvalidPolicy: The annotation is neither ``Fail`` nor ``Ignore``.
    """
    given = annotations_of(policy).get(FAILURE_POLICY_ANNOTATION, default)
    if given not in (FAIL, IGNORE):
        place = f"metadata.annotations[{FAILURE_POLICY_ANNOTATION}]"
        raise InvalidPolicy(place, f"expected {FAIL} or {IGNORE}")
    return str(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The mutation of a rule that only refuses requests; see `reconciler.engine.ports`."""

    convergence: Convergence = Convergence.YES
    merge_keys: bool = False

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any]:
        """Return a copy of the object without changes."""
        del index, context, keys
        return dict(obj)
