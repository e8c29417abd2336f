"""What a policy language has to give; the registry has one line for each."""

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
from reconciler.errors import InvalidPolicy

FAILURE_POLICY_ANNOTATION: Final = f"{PREFIX}failure-policy"
"""On a policy of a language whose policies say nothing of it: ``Fail`` or ``Ignore``."""

Compile = Callable[[Object, str], CompiledPolicy]
Lint = Callable[[Object, CompiledPolicy], Iterator[Finding]]

PLACE: Final = f"metadata.annotations[{ANNOTATION_EXISTING}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The system that a language comes from, by which it is seen to be at work in a cluster.

    Attributes:
        name: What people call it.
        kind: Of the webhook configuration that it makes.
        configuration: Its name.
    """

    name: str
    kind: str
    configuration: str


class Dialect(Protocol):
    """A policy language: pure, and unaware of all others."""

    @property
    def name(self) -> str:
        """The name that programs carry as that of their language."""
        ...

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its policies, in the version that is watched."""
        ...

    @property
    def optional(self) -> bool:
        """Whether the programs work in a cluster that does not serve the kinds."""
        ...

    @property
    def original(self) -> Original | None:
        """What must not act on the same policies; None where its own program looks for it."""
        ...

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations that `compile` reads; a change of one is no other generation."""
        ...

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy's rules.

        Args:
            policy: The object.
            given: What the caller gives in place of context entries, by rule.

        Raises:
            InvalidPolicy: It cannot be compiled; holds every place that is wrong.
        """
        ...

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return what compiles of a policy, and what is wrong with the rest.

        Without a policy something outside of its rules is wrong; else its programs are those of
        the rules that compile.
        """
        ...

    def lint(
        self,
        policy: Object,
        compiled: CompiledPolicy,
        *,
        scope: Scope,
        guard: Guard,
        wrong: Sequence[InvalidPolicy] = (),
    ) -> Iterator[Finding]:
        """Yield what the author should know that only this language's text shows.

        Args:
            policy: The object as written.
            compiled: The same, compiled.
            scope: Tells which kinds are namespaced.
            guard: Tells what no policy may address.
            wrong: What does not compile of it; nothing more is said about such rules.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalDialect:
    """A `Dialect` whose policies compile as a whole, and which most clusters do not have.

    What its policies mean is imported when there is one: most commands and clusters see none.

    Attributes:
        meaning: Imports it: gives `compile`, with the language's name, and `lint`.
    """

    name: str
    kinds: tuple[Kind, ...]
    annotations: tuple[str, ...]
    original: Original | None
    meaning: Callable[[], tuple[Compile, Lint]] = field(repr=False)
    optional: bool = True

    def compile(
        self, policy: Object, *, given: Mapping[str, Given] | None = None
    ) -> CompiledPolicy:
        """Return the programs of a policy; nothing can be given in place of their parts."""
        del given
        compiled, _ = self.meaning()
        return compiled(policy, self.name)

    def examine(self, policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
        """Return what compiles of a policy, and what is wrong with it."""
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
        """Yield what only the text of the policy shows."""
        del scope, guard, wrong
        _, found = self.meaning()
        return found(policy, compiled)


def wants_existing(policy: Object) -> bool:
    """Return whether rules that change their trigger are to run on what exists, too.

    Raises:
        InvalidPolicy: The annotation says neither.
    """
    found = (policy.get("metadata") or {}).get("annotations")
    value = found.get(ANNOTATION_EXISTING, "false") if isinstance(found, Mapping) else "false"
    if value not in ("true", "false"):
        raise InvalidPolicy(PLACE, f"{value!r} is neither true nor false")
    return bool(value == "true")


def failure_policy_of(policy: Object, *, default: str) -> str:
    """Return what becomes of a request that nobody can ask a policy about.

    Raises:
        InvalidPolicy: The annotation says neither.
    """
    annotations = (policy.get("metadata") or {}).get("annotations") or {}
    given = annotations.get(FAILURE_POLICY_ANNOTATION, default)
    if given not in (FAIL, IGNORE):
        place = f"metadata.annotations[{FAILURE_POLICY_ANNOTATION}]"
        raise InvalidPolicy(place, f"expected {FAIL} or {IGNORE}")
    return str(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The mutation of a rule that refuses requests: none; see `reconciler.engine.ports`."""

    convergence: Convergence = Convergence.YES
    merge_keys: bool = False

    def apply(
        self, index: int | None, context: Context, obj: Mapping[str, Any], keys: KeyTable
    ) -> dict[str, Any]:
        """Return the object as it is."""
        del index, context, keys
        return dict(obj)
