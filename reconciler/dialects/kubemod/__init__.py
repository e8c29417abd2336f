"""ModRules of KubeMod: they change or reject objects before these are stored."""

from reconciler.dialects.kubemod.dialect import KUBEMOD

__all__ = ["KUBEMOD"]
