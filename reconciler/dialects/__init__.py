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
    api_version, kind = str(policy.get("apiVersion", "")), str(policy.get("kind", ""))
    if api_version.startswith(f"{GROUP}/") and kind in kyverno.KINDS:
        return kyverno.compile_policy(policy, own=own, given=given)
    raise InvalidPolicy(
        "kind", f"{api_version} {kind} is no policy; ClusterPolicy and Policy of {GROUP} are known"
    )
