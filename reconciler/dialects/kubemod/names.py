"""Names with a special meaning to the dialect."""

from typing import Final

from reconciler.api.meta import PREFIX

SYSTEM_NAMESPACE: Final = "kubemod-system"
"""The namespace whose rules apply to the whole cluster."""

KINDS_ANNOTATION: Final = f"{PREFIX}kinds"
"""The kinds of a rule whose items do not determine them, as ``Pod, apps/v1/Deployment``."""
