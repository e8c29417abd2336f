"""Policy languages: each turns a policy object into programs of the engine."""

from collections.abc import Mapping

from reconciler.api.meta import GROUP, Object
from reconciler.dialects import kyverno
from reconciler.dialects.kyverno.exception import compile_exception, is_exception
from reconciler.dialects.kyverno.globalcontext import (
    CallSource,
    CompiledEntry,
    ResourceSource,
    compile_entry,
)
from reconciler.engine.entries import Given
from reconciler.engine.program import CompiledPolicy
from reconciler.errors import InvalidPolicy

__all__ = [
    "CallSource",
    "CompiledEntry",
    "ResourceSource",
    "compile_entry",
    "compile_exception",
    "compile_policy",
    "examine_policy",
    "is_exception",
]


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
    _check_language(policy)
    return kyverno.compile_policy(policy, own=own, given=given)


def examine_policy(policy: Object) -> tuple[CompiledPolicy | None, tuple[InvalidPolicy, ...]]:
    """Return what compiles of a policy of any known language, and what is wrong with the rest.

    Without a policy something outside of its rules is wrong; else its programs are those of the
    rules that compile.
    """
    try:
        _check_language(policy)
    except InvalidPolicy as error:
        return None, (error,)
    return kyverno.examine_policy(policy)


def _check_language(policy: Object) -> None:
    api_version, kind = str(policy.get("apiVersion", "")), str(policy.get("kind", ""))
    if not api_version.startswith(f"{GROUP}/") or kind not in kyverno.KINDS:
        reason = (
            f"{api_version} {kind} is no policy; ClusterPolicy and Policy of {GROUP} are known"
        )
        raise InvalidPolicy("kind", reason)
