"""Checks without storing anything whether the API server compiles a webhook's CEL conditions.

The check is a dry run of a ValidatingAdmissionPolicy, whose conditions are compiled alike. The
right to do that affects nothing, while the right to write webhooks affects every object.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconciler.api.meta import Kind
from reconciler.errors import Invalid, NoKindMatch
from reconciler.kube.client import Client

_POLICIES: Final = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    namespaced=False,
)
_NAME: Final = "kube-retrofit-check"
_NOWHERE: Final = {
    "apiGroups": ["kube-retrofit.dev"],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["none"],
}
_FOUND: Final = " is invalid: "


class KubeConditions:
    """The `MatchConditions` port."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def check(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        """Check conditions; if the API server does not serve the policy kind, none is rejected.

        Raises:
            Invalid: They do not compile; the message says where: ``matchConditions[0]...``.
        """
        body = {
            **_POLICIES.head,
            "metadata": {"name": _NAME},
            "spec": {
                "matchConstraints": {"resourceRules": [_NOWHERE]},
                "validations": [{"expression": "true"}],
                "matchConditions": [dict(item) for item in conditions],
            },
        }
        try:
            await self._client.resource(_POLICIES).server_side_apply(
                body, _NAME, force_conflicts="true", dry_run="All"
            )
        except NoKindMatch:
            return  # The server is older than that kind; it reports errors on registration.
        except Invalid as error:
            text = str(error).partition(_FOUND)[2] or str(error)
            if text.startswith("[") and text.endswith("]"):
                text = text[1:-1]
            text = text.replace("spec.matchConditions", "matchConditions")
            raise Invalid(text) from error
