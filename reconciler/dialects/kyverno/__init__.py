"""ClusterPolicy and Policy of kyverno.io: rules with ``mutate.targets`` become programs."""

from reconciler.dialects.kyverno.exception import KIND as EXCEPTION
from reconciler.dialects.kyverno.exception import compile_exception, is_exception
from reconciler.dialects.kyverno.policy import KINDS, compile_policy, examine_policy

__all__ = [
    "EXCEPTION",
    "KINDS",
    "compile_exception",
    "compile_policy",
    "examine_policy",
    "is_exception",
]
