"""Policies of kinitiras: OverridePolicy, ClusterOverridePolicy and ClusterValidatePolicy."""

from reconciler.dialects.kinitiras.dialect import KINITIRAS

__all__ = ["KINITIRAS"]
