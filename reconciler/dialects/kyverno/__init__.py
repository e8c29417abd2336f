"""ClusterPolicy and Policy of kyverno.io: rules with ``mutate.targets`` become programs."""

from reconciler.dialects.kyverno.dialect import KYVERNO

__all__ = ["KYVERNO"]
