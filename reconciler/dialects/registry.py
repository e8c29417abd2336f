"""The registry of policy languages; no other module outside of a language names one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reconciler.api.meta import Kind, Object, PolicyRef, split_api_version
from reconciler.dialects.base import Dialect
from reconciler.dialects.kinitiras import KINITIRAS
from reconciler.dialects.kubemod import KUBEMOD
from reconciler.dialects.kyverno import KYVERNO, KYVERNO_BESIDE
from reconciler.dialects.kyverno.exception import KIND as EXCEPTION
from reconciler.dialects.kyverno.exception import compile_exception, is_exception
from reconciler.dialects.kyverno.globalcontext import (
    CallSource,
    CompiledEntry,
    ResourceSource,
    compile_entry,
)
from reconciler.dialects.kyverno.lint.exceptions import lint_exception
from reconciler.dialects.kyverno.rights import source_rights
from reconciler.engine.given import Given
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy, NoKindMatch
from reconciler.installation import BESIDE, REPLACING, Installation

__all__ = [
    "DIALECTS",
    "EXCEPTION",
    "KNOWN_KINDS",
    "OPTIONAL_KINDS",
    "POLICY_KINDS",
    "REFUSING_KINDS",
    "CallSource",
    "CompiledEntry",
    "ResourceSource",
    "compile_entry",
    "compile_exception",
    "compile_policy",
    "dialect_named",
    "dialect_of",
    "dialects_of",
    "examine_policy",
    "is_exception",
    "is_policy",
    "lint_exception",
    "policy_kind",
    "policy_kinds",
    "required_kinds",
    "source_rights",
    "variant_of",
]

DIALECTS: Final[tuple[Dialect, ...]] = (KYVERNO, KUBEMOD, KINITIRAS)

KNOWN: Final[tuple[Dialect, ...]] = (*DIALECTS, KYVERNO_BESIDE)
"""The languages that the desk supports; `dialects_of` returns those of an installation."""

KNOWN_KINDS: Final = tuple(kind for dialect in KNOWN for kind in dialect.kinds)

POLICY_KINDS: Final = tuple(kind for dialect in DIALECTS for kind in dialect.kinds)
"""The policy kinds of an installation that replaces Kyverno."""

OPTIONAL_KINDS: Final = tuple(
    kind for dialect in DIALECTS if dialect.optional for kind in dialect.kinds
)
"""The policy kinds that either installation watches only where and while they are served."""

REFUSING_KINDS: Final = tuple(kind for dialect in DIALECTS for kind in dialect.refusing)
"""The policy kinds without requests and results, since their policies only refuse requests."""


def dialects_of(installation: Installation) -> tuple[Dialect, ...]:
    """Return the languages that the programs of an installation act on."""
    own = KYVERNO_BESIDE if installation is BESIDE else KYVERNO
    return tuple(own if dialect is KYVERNO else dialect for dialect in DIALECTS)


def policy_kinds(installation: Installation) -> tuple[Kind, ...]:
    """Return the policy kinds of an installation: watched, listed, and validated when written."""
    return tuple(kind for dialect in dialects_of(installation) for kind in dialect.kinds)


def required_kinds(installation: Installation) -> tuple[Kind, ...]:
    """Return the policy kinds that must be served before the programs start."""
    needed = (dialect for dialect in dialects_of(installation) if not dialect.optional)
    return tuple(kind for dialect in needed for kind in dialect.kinds)


def policy_kind(ref: PolicyRef, installation: Installation = REPLACING) -> Kind:
    """Return the kind under which a policy of an installation is served.

    Raises:
        NoKindMatch: The installation does not act on policies of this kind.
    """
    for kind in policy_kinds(installation):
        if (kind.api_version, kind.kind) == (ref.api_version, ref.kind):
            return kind
    raise NoKindMatch(f"{ref.kind} of {ref.api_version} is not a kind of policy", status=404)


def dialect_named(ref: PolicyRef) -> Dialect | None:
    """Return the language of a policy by its API version and kind, None where it is unknown."""
    kinds = ((dialect, kind) for dialect in KNOWN for kind in dialect.kinds)
    wanted = ref.api_version, ref.kind
    return next((it for it, kind in kinds if (kind.api_version, kind.kind) == wanted), None)


def dialect_of(policy: Object) -> Dialect:
    """Return the language of a policy object.

    Raises:
        InvalidPolicy: The object is no policy of a known language.
    """
    for dialect in KNOWN:
        if _is_of(dialect, policy):
            return dialect
    api_version, kind = str(policy.get("apiVersion", "")), str(policy.get("kind", ""))
    known = " and ".join(
        f"{' and '.join(sorted(kind.kind for kind in dialect.kinds))} of {dialect.kinds[0].group}"
        for dialect in KNOWN
    )
    raise InvalidPolicy("kind", f"{api_version} {kind} is not a policy; {known} are known")


def is_policy(obj: Object) -> bool:
    """Return whether an object is a policy of a known language."""
    return any(_is_of(dialect, obj) for dialect in KNOWN)


def _is_of(dialect: Dialect, obj: Object) -> bool:
    group, _ = split_api_version(str(obj.get("apiVersion", "")))
    return any((kind.group, kind.kind) == (group, obj.get("kind")) for kind in dialect.kinds)


def compile_policy(policy: Object, *, given: Mapping[str, Given] | None = None) -> CompiledPolicy:
    """Return the compiled form of a policy object of any known language.

    Args:
        given: Values that the caller provides in place of context entries, by rule.

    Raises:
        InvalidPolicy: It is of no known language, or cannot be compiled; names the location.
    """
    compiled = dialect_of(policy).compile(policy, given=given)
    return replace(compiled, variant=variant_of(policy))


def variant_of(policy: Object) -> tuple[str, ...]:
    """Return the annotations that affect how a policy is compiled, as ``name=value``.

    Two versions of a policy with equal generation and variant compile to equal programs.
    """
    annotations = (policy.get("metadata") or {}).get("annotations")
    if not isinstance(annotations, Mapping) or not is_policy(policy):
        return ()
    names = dialect_of(policy).annotations
    return tuple(f"{name}={annotations[name]}" for name in names if name in annotations)


def examine_policy(policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
    """Return a policy of any known language with the rules that compile, and all errors."""
    try:
        dialect = dialect_of(policy)
    except InvalidPolicy as error:
        return None, (error,)
    return dialect.examine(policy)
