"""Names that mean something in this language."""

from typing import Final

from reconciler.api.meta import PREFIX

SYSTEM_NAMESPACE: Final = "kubemod-system"
"""Rules in it are for the whole cluster."""

KINDS_ANNOTATION: Final = f"{PREFIX}kinds"
"""The kinds of a rule whose text does not tell them, as ``Pod, apps/v1/Deployment``."""
