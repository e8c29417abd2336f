"""ClusterPolicy and Policy of kyverno.io: its ``mutate`` rules become programs."""

from reconciler.dialects.kyverno.dialect import KYVERNO

__all__ = ["KYVERNO"]
