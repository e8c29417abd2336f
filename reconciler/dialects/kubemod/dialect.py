"""The registry entry of the dialect for KubeMod's ModRules."""

from typing import Final

from reconciler.api.kinds import MOD_RULES
from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.dialects.base import (
    FAILURE_POLICY_ANNOTATION,
    Compile,
    Lint,
    OptionalDialect,
    Original,
)
from reconciler.dialects.kubemod.names import KINDS_ANNOTATION


def _meaning() -> tuple[Compile, Lint]:
    from reconciler.dialects.kubemod.compiler import compile_rule, findings  # noqa: PLC0415

    return compile_rule, findings


KUBEMOD: Final = OptionalDialect(
    name="kubemod",
    kinds=(MOD_RULES,),
    annotations=(KINDS_ANNOTATION, FAILURE_POLICY_ANNOTATION, ANNOTATION_EXISTING),
    original=Original(
        name="KubeMod",
        kind="MutatingWebhookConfiguration",
        configuration="kubemod-mutating-webhook-configuration",
    ),
    meaning=_meaning,
)
