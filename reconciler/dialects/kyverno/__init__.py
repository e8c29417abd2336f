"""The language of Kyverno: ``mutate`` rules of ClusterPolicy and Policy compile to programs."""

from reconciler.dialects.kyverno.dialect import KYVERNO, KYVERNO_BESIDE

__all__ = ["KYVERNO", "KYVERNO_BESIDE"]
