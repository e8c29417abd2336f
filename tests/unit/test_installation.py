"""The names of an installation appear in everything that it writes into a cluster."""

import json

import pytest

from reconciler.api.kinds import installation_of, kinds_of, policy_named
from reconciler.api.meta import own_namespaces
from reconciler.api.policyreport import render_report
from reconciler.api.requestwire import parse_request
from reconciler.clock import SystemClock
from reconciler.config import AdmissionSettings, ControllerSettings, build
from reconciler.dialects.registry import (
    compile_exception,
    compile_policy,
    is_exception,
    policy_kind,
    policy_kinds,
    required_kinds,
)
from reconciler.errors import InvalidSetting, NoKindMatch
from reconciler.installation import BESIDE, REPLACING, Installation
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.webhooks import Endpoint
from reconciler.services.rollout.webhook_config import (
    WebhookConfig,
    configurations,
    refs_of,
    silent,
)
from reconciler.services.upkeep.coexistence import KyvernoDetector

POLICY = {
    "kind": "ClusterPolicy",
    "metadata": {"name": "p", "uid": "u"},
    "spec": {
        "rules": [
            {
                "name": "r",
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "mutate": {
                    "targets": [{"apiVersion": "v1", "kind": "Secret", "name": "s"}],
                    "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}},
                },
            }
        ]
    },
}


def registration(installation: Installation) -> WebhookConfig:
    return WebhookConfig(
        endpoint=Endpoint(ca_bundle=b"PEM", service=installation.service),
        namespace=installation.namespace,
        controller_users=(),
        timeout=10.0,
        installation=installation,
    )


@pytest.mark.parametrize("settings", [AdmissionSettings, ControllerSettings])
class TestSettings:
    def test_the_policy_group_determines_the_names_of_the_installation(self, settings):
        built = build(settings, {"policy_group": BESIDE.group})
        assert built.installation is BESIDE
        assert (built.namespace, built.service) == ("kube-retrofit", "kube-retrofit-svc")
        user = "system:serviceaccount:kube-retrofit:kube-retrofit-background"
        assert built.background_user == user

    def test_a_flag_overrides_a_name_of_the_installation(self, settings):
        built = build(settings, {"policy_group": BESIDE.group, "namespace": "kyverno"})
        assert built.namespace == "kyverno"
        assert built.service == BESIDE.service

    def test_take_over_is_refused_for_an_installation_beside_kyverno(self, settings):
        with pytest.raises(InvalidSetting, match="--take-over needs --policy-group"):
            build(settings, {"policy_group": BESIDE.group, "take_over": True})


class TestKinds:
    def test_each_installation_acts_on_its_own_policies(self):
        for installation, other in ((REPLACING, BESIDE), (BESIDE, REPLACING)):
            groups = {kind.group for kind in required_kinds(installation)}
            assert groups == {installation.group}
            assert other.group not in {kind.group for kind in policy_kinds(installation)}
            ref = policy_named("shop/p", installation)
            assert policy_kind(ref, installation) == kinds_of(installation).policies
            with pytest.raises(NoKindMatch):
                policy_kind(ref, other)

    def test_a_policy_is_compiled_in_either_group(self):
        first, second = (
            compile_policy({**POLICY, "apiVersion": kinds_of(item).policies.api_version})
            for item in (REPLACING, BESIDE)
        )
        assert first.key == second.key == "p"
        assert first.ref != second.ref

    def test_an_exception_of_the_kube_retrofit_group_is_compiled(self):
        exception = {
            "apiVersion": "kube-retrofit.dev/v1",
            "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "n"},
            "spec": {
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "exceptions": [{"policyName": "p", "ruleNames": ["*"]}],
            },
        }
        assert is_exception(exception)
        assert compile_exception(exception).policies == {"p"}

    def test_a_request_without_a_reference_means_a_policy_of_its_own_group(self):
        request = {"kind": "UpdateRequest", "metadata": {"name": "a"}, "spec": {"policy": "p"}}
        for item in (REPLACING, BESIDE):
            api_version = kinds_of(item).requests.api_version
            assert installation_of(api_version) is item
            found = parse_request({**request, "apiVersion": api_version}).spec.policy
            assert found == policy_named("p", item)


class TestWhatIsWritten:
    def test_webhook_configurations_name_nothing_of_the_other_installation(self):
        policy = {**POLICY, "apiVersion": "kube-retrofit.dev/v1"}
        written = configurations([compile_policy(policy)], {}, registration(BESIDE))
        assert tuple(written) == refs_of(BESIDE)
        text = json.dumps(list(written.values()))
        assert "kyverno" not in text
        assert "retrofitclusterpolicies" in text

    def test_the_two_installations_stand_by_with_different_webhook_configurations(self):
        assert set(silent(registration(BESIDE))).isdisjoint(silent(registration(REPLACING)))

    def test_reports_of_the_two_installations_have_different_names(self):
        (first, second) = (
            render_report("shop", [], installation=item)["metadata"]
            for item in (REPLACING, BESIDE)
        )
        assert first["name"] != second["name"]
        assert second["labels"]["app.kubernetes.io/managed-by"] == "kube-retrofit"


class TestWhatNoPolicyReaches:
    @pytest.mark.parametrize("installation", [REPLACING, BESIDE])
    def test_requests_and_recorded_secrets_of_both_installations_are_protected(self, installation):
        protection = Protection(namespace=installation.namespace)
        for other in (REPLACING, BESIDE):
            requests = kinds_of(other).requests
            assert protection.of_read(requests.group, requests.plural, "x")
            assert protection.of_write("", other.recorded)
            assert protection.of_write(other.group, "shop")
            assert other.recorded in own_namespaces(installation.namespace)


async def test_an_installation_beside_kyverno_does_not_look_for_a_kyverno():
    class Unread:
        async def lease(self, name):
            raise AssertionError(name)

        async def put(self, name, body):
            raise AssertionError(name)

    detector = KyvernoDetector(
        leases=Unread(),
        names=(),
        clock=SystemClock(),
        namespace=BESIDE.namespace,
        take_over=False,
        warn=print,
    )
    await detector.look()
    assert detector.looked.is_set()
    assert detector.standing_by == ""
