"""OverridePolicies of a tenant send no Secret that their author may not read."""

import uuid

import pytest

from reconciler.api.meta import Object
from reconciler.dialects.kinitiras.labelled import ANNOTATION
from reconciler.errors import ClusterError
from tests.attacks.roles import Roles
from tests.faults.rig import Rig
from tests.integration.test_kinitiras import API_VERSION, CONFIG_MAPS, policies, referring

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

__all__ = ["policies"]

MARKS = {ANNOTATION: "all"}


def sending(place: str, **secret: str) -> Object:
    """Return a policy that sends the content of a Secret to a Service of the tenant."""
    http = {"url": f"http://mine.{place}.svc/", "auth": {"secretRef": secret}}
    overriders = referring("a", {"from": "http", "path": "a", "http": http})
    return {
        "apiVersion": API_VERSION,
        "kind": "OverridePolicy",
        "metadata": {"name": "sends", "namespace": place, "annotations": MARKS},
        "spec": {
            "resourceSelectors": [CONFIG_MAPS],
            "overrideRules": [{"overriders": overriders}],
        },
    }


async def asked_about(rig: Rig, wrong: Object) -> None:
    """Wait until the webhook reviews the kind, whose CRD was installed a moment ago."""

    async def missing() -> str:
        if await rig.refused(wrong):
            return ""
        await rig.delete(wrong["kind"], wrong["metadata"]["name"])
        return "policies are stored unasked"

    await rig.settle(missing, within=30.0)


async def test_an_author_cannot_send_a_secret_that_they_may_not_read(
    roles: Roles, rig: Rig, policies: Rig
) -> None:
    del policies
    canary, place = uuid.uuid4().hex, rig.namespace
    await rig.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "theirs", "namespace": place},
            "stringData": {"token": canary},
        }
    )
    group = "rbac.authorization.k8s.io"
    writer = roles.users["policy-writer"]
    role = "kube-retrofit:rbac:admin:overridepolicies"
    await rig.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "overrides", "namespace": place},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": writer}],
        }
    )
    await roles.policy_writer.learn(API_VERSION, "OverridePolicy")
    await asked_about(rig, sending(place, name="x", namespace="elsewhere"))
    # The programs may read the Secret, as in clusters where they were granted all Secrets.
    async with rig.granted("secrets"):
        for secret, why in (
            ({"name": "theirs"}, "may not get secrets in namespace"),
            ({"name": "theirs", "namespace": "kyverno"}, "can read only that namespace"),
            ({"name": "kube-retrofit-ca", "namespace": "kyverno"}, "can read only that namespace"),
        ):
            with pytest.raises(ClusterError, match=why) as refused:
                await roles.policy_writer.create(sending(place, **secret))
            assert canary not in str(refused.value)
        # An author who may read the Secret may refer to it.
        await rig.create(sending(place, name="theirs"))
