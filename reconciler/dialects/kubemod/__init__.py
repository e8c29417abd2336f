"""KubeMod's ModRules, which change or reject objects before they are stored."""

from reconciler.dialects.kubemod.dialect import KUBEMOD

__all__ = ["KUBEMOD"]
