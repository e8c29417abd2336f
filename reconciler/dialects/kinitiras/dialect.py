"""The registry entry of the dialect for the policies of kinitiras."""

from typing import Final

from reconciler.api.kinds import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_VALIDATE_POLICIES,
    OVERRIDE_POLICIES,
)
from reconciler.api.meta import ANNOTATION_EXISTING
from reconciler.dialects.base import (
    FAILURE_POLICY_ANNOTATION,
    Compile,
    Lint,
    OptionalDialect,
    Original,
)
from reconciler.dialects.kinitiras.labelled import ANNOTATION as OBJECTS_ANNOTATION


def _meaning() -> tuple[Compile, Lint]:
    from reconciler.dialects.kinitiras.compiler import compile_policy  # noqa: PLC0415
    from reconciler.dialects.kinitiras.lint import find_surprises  # noqa: PLC0415

    return compile_policy, find_surprises


KINITIRAS: Final = OptionalDialect(
    name="kinitiras",
    kinds=(CLUSTER_OVERRIDE_POLICIES, OVERRIDE_POLICIES, CLUSTER_VALIDATE_POLICIES),
    refusing=(CLUSTER_VALIDATE_POLICIES,),
    annotations=(ANNOTATION_EXISTING, FAILURE_POLICY_ANNOTATION, OBJECTS_ANNOTATION),
    original=Original(
        name="kinitiras",
        kind="MutatingWebhookConfiguration",
        configuration="kinitiras-webhook",
    ),
    meaning=_meaning,
)
