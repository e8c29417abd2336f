"""The policy languages that are known; nobody else names one."""

from collections.abc import Mapping
from typing import Final

from reconciler.api.meta import Object
from reconciler.dialects.base import Dialect
from reconciler.dialects.kyverno import KYVERNO
from reconciler.dialects.kyverno.exception import KIND as EXCEPTION
from reconciler.dialects.kyverno.exception import compile_exception, is_exception
from reconciler.dialects.kyverno.globalcontext import (
    CallSource,
    CompiledEntry,
    ResourceSource,
    compile_entry,
)
from reconciler.dialects.kyverno.lint.exceptions import lint_exception
from reconciler.engine.given import Given
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy

__all__ = [
    "DIALECTS",
    "EXCEPTION",
    "POLICY_KINDS",
    "CallSource",
    "CompiledEntry",
    "ResourceSource",
    "compile_entry",
    "compile_exception",
    "compile_policy",
    "dialect_of",
    "examine_policy",
    "is_exception",
    "is_policy",
    "lint_exception",
]

DIALECTS: Final[tuple[Dialect, ...]] = (KYVERNO,)


POLICY_KINDS: Final = frozenset[str]().union(*(dialect.kinds for dialect in DIALECTS))
"""The kinds of all languages, for those who look for policies among other objects."""


def dialect_of(policy: Object) -> Dialect:
    """Return the language of a policy object.

    Raises:
        InvalidPolicy: It is of none that is known.
    """
    api_version, kind = str(policy.get("apiVersion", "")), str(policy.get("kind", ""))
    for dialect in DIALECTS:
        if api_version.startswith(f"{dialect.group}/") and kind in dialect.kinds:
            return dialect
    known = " and ".join(
        f"{' and '.join(sorted(dialect.kinds))} of {dialect.group}" for dialect in DIALECTS
    )
    raise InvalidPolicy("kind", f"{api_version} {kind} is no policy; {known} are known")


def is_policy(obj: Object) -> bool:
    """Return whether an object is a policy of a known language."""
    group, kind = str(obj.get("apiVersion", "")).partition("/")[0], obj.get("kind")
    return any(group == dialect.group and kind in dialect.kinds for dialect in DIALECTS)


def compile_policy(
    policy: Object, *, own: bool = False, given: Mapping[str, Given] | None = None
) -> CompiledPolicy:
    """Return the compiled form of a policy object of any known language.

    Args:
        policy: The object.
        own: Rules that change their trigger itself become programs too; only the desk wants them.
        given: What the caller gives in place of context entries, by rule.

    Raises:
        InvalidPolicy: It is of no known language, or cannot be compiled; names the place.
    """
    return dialect_of(policy).compile(policy, own=own, given=given)


def examine_policy(policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
    """Return what compiles of a policy of any known language, and what is wrong with the rest."""
    try:
        dialect = dialect_of(policy)
    except InvalidPolicy as error:
        return None, (error,)
    return dialect.examine(policy)
