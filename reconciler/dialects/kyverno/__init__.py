"""ClusterPolicy and Policy as Kyverno has them: their ``mutate`` rules become programs."""

from reconciler.dialects.kyverno.dialect import KYVERNO, KYVERNO_BESIDE

__all__ = ["KYVERNO", "KYVERNO_BESIDE"]
