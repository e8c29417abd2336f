"""Objects and fields that no policy reads or changes, whatever rights the controller has."""

from dataclasses import replace

import pytest

from reconciler.api.updaterequest import Outcome
from reconciler.config import ControllerSettings
from reconciler.engine.match import Subject
from reconciler.errors import InvalidSetting
from reconciler.requests.lifecycle import Done, Fail
from reconciler.services.catalog.protection import Protection
from reconciler.services.catalog.settings import SettingsHolder
from tests.unit.engine.rules import make_rule

OWN = "kyverno"
PROTECTION = Protection()
REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/kyverno/secrets/kube-retrofit-ca",
        "/api/v1/namespaces/kyverno/secrets",
        "/api/v1/namespaces/kyverno%2Fsecrets%2Fkube-retrofit-ca",
        # The HTTP client drops tabs and line ends, so these would be paths from above.
        "/api/v1/namespaces/kyv\terno/secrets/kube-retrofit-ca",
        "/apis/coordination\n.k8s.io/v1/leases",
        "/api/v1/namespaces/team/.\r./kyverno/secrets/x",
        "/api/v1//namespaces//kyverno//pods",
        "/api/v1/watch/namespaces/kyverno/secrets",
        "/api/v1/namespaces/kyverno/secrets?limit=1",
        "/api/v1/namespaces/team/../kyverno/secrets/x",
        "/api/v1/namespaces/kyverno/services/kyverno-svc/proxy/",
        "/apis/apps/v1/namespaces/kyverno/deployments",
        f"{WEBHOOKS}/kube-retrofit-resource",
        WEBHOOKS,
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1/namespaces/team/leases/x",
        "/apis/kyverno.io/v2/updaterequests",
        "/apis/kyverno.io/v2/namespaces/kyverno/updaterequests/ur-1",
    ],
)
def test_protected_paths_may_not_be_read(path: str) -> None:
    assert PROTECTION.of_call("GET", path)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/kyverno",
        "/api/v1/namespaces/kyverno/status",
        "/api/v1/namespaces/kyverno/configmaps/dictionary",
        "/api/v1/namespaces/team/secrets/kyverno",
        "/api/v1/secrets",
        "/api/v1/namespaces/{}/pods",
        "/apis/kyverno.io/v1/clusterpolicies",
        "/apis/apps/v1/namespaces/team/deployments",
        "/api/v1/namespaces/team/pods?labelSelector=app in (web, api)",
        "/version",
        "{}",
    ],
)
def test_unprotected_paths_may_be_read(path: str) -> None:
    assert PROTECTION.of_call("GET", path) == ""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (REVIEW, True),
        ("/apis/authorization.k8s.io/v1/namespaces/team/localsubjectaccessreviews", True),
        ("/apis/authentication.k8s.io/v1/tokenreviews", True),
        (WEBHOOKS, False),
        ("/api/v1/namespaces/team/configmaps", False),
        ("/api/v1/namespaces/team/serviceaccounts/robot/token", False),
        ("/version", False),
        (f"{REVIEW}/../selfsubjectreviews", False),
    ],
)
def test_only_posts_that_create_nothing_are_allowed(path: str, *, allowed: bool) -> None:
    assert (PROTECTION.of_call("POST", path) == "") is allowed


def test_a_list_of_all_namespaces_omits_secrets_of_kube_retrofit() -> None:
    ours, theirs = ({"metadata": {"namespace": name}} for name in (OWN, "team"))
    answer = {"kind": "SecretList", "items": [ours, theirs]}
    lean = PROTECTION.without_own("/api/v1/secrets?limit=5", answer)
    assert lean == {"kind": "SecretList", "items": [theirs]}
    assert PROTECTION.without_own("/api/v1/configmaps", answer) == answer


def test_the_protected_namespace_is_configurable() -> None:
    elsewhere = Protection(namespace="policies")
    assert elsewhere.of_call("GET", "/api/v1/namespaces/policies/secrets/x")
    assert elsewhere.of_call("GET", "/api/v1/namespaces/kyverno/secrets/x") == ""


@pytest.mark.parametrize(("kind", "left"), [("Secret", True), ("Namespace", False)])
def test_objects_in_the_own_namespace_trigger_nothing_whatever_the_filters(
    kind: str, *, left: bool
) -> None:
    holder = SettingsHolder.of(OWN)
    holder.load({"resourceFilters": "[Event,*,*]"})
    subject = Subject(obj={}, group="", version="v1", kind=kind, name="x", namespace=OWN)
    assert holder.leaves_trigger(make_rule("r"), subject) is left


def test_resource_filters_do_not_apply_to_unfiltered_rules() -> None:
    holder = SettingsHolder.of(OWN)
    holder.load({"resourceFilters": "[Secret,*,*]"})
    rule, subject = make_rule("r"), Subject(obj={}, group="", version="v1", kind="Secret")
    assert holder.leaves_trigger(rule, subject)
    assert not holder.leaves_trigger(replace(rule, filtered=False), subject)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Secret", {"namespace": "{{ request.object.data.place }}"}),
        ("ValidatingWebhookConfiguration", {"namespace": None}),
        ("Lease", {"namespace": "a"}),
        ("ClusterPolicy", {"namespace": None}),
    ],
)
async def test_a_protected_target_found_by_evaluation_is_refused_and_not_read(
    world, make, kind, fields
) -> None:
    version = {
        "Secret": "v1",
        "Lease": "coordination.k8s.io/v1",
        "ClusterPolicy": "kyverno.io/v1",
    }.get(kind, "admissionregistration.k8s.io/v1")
    target = make.target("mine", **fields) | {"kind": kind, "apiVersion": version}
    target = {key: value for key, value in target.items() if value is not None}
    place = OWN if kind == "Secret" else target.get("namespace", "")
    stored = world.cluster.add(make.object(kind, "mine", place, apiVersion=version))
    trigger = world.cluster.add(make.object(data={"place": OWN}))
    request = await world.ask(world.install(make.policy(targets=[target])), trigger)
    ended = await world.processor.attempt(request, 0.0)
    assert isinstance(ended.disposition, Fail)
    assert [item.outcome for item in ended.targets] == [Outcome.FAILED]
    assert "no policy" in ended.disposition.message
    assert await world.read(stored) == stored
    assert world.wire.calls[f"get {kind} mine"] == 0


async def test_a_target_pattern_skips_objects_in_the_own_namespace(world, make) -> None:
    ours, theirs = (world.cluster.add(make.object("Secret", "s", name)) for name in (OWN, "b"))
    policy = make.policy(targets=[{"apiVersion": "v1", "kind": "Secret", "namespace": "*"}])
    request = await world.ask(world.install(policy), world.cluster.add(make.object()))
    ended = await world.processor.attempt(request, 0.0)
    assert ended.disposition == Done()
    outcomes = {item.ref.namespace: item.outcome for item in ended.targets}
    assert outcomes == {OWN: Outcome.SKIPPED, "b": Outcome.PATCHED}
    assert await world.read(ours) == ours
    assert await world.read(theirs) != theirs


async def test_a_request_whose_trigger_is_protected_is_refused_without_a_read(world, make) -> None:
    secret = world.cluster.add(make.object("Secret", "kube-retrofit-ca", OWN, data={"k": "v"}))
    request = await world.ask(world.install(make.policy(kinds=("Secret",))), secret)
    ended = await world.processor.attempt(request, 0.0)
    assert isinstance(ended.disposition, Fail)
    assert ended.disposition.reason == "TriggerRefused"
    assert world.wire.calls["get"] == 0


@pytest.mark.parametrize("field", ["ownerReferences", "finalizers"])
@pytest.mark.parametrize("allowed", [False, True])
async def test_owner_references_and_finalizers_are_changed_only_if_allowed(
    world, make, field: str, *, allowed: bool
) -> None:
    target = world.cluster.add(make.object("Secret", "s"))
    settings = ControllerSettings(allow_metadata=field if allowed else "")
    world.lanes.protection = Protection.of(settings)
    # The name of the field comes from the trigger; the policy does not contain it.
    key = "{{ request.object.data.key }}"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
    value = [owner] if field == "ownerReferences" else ["example.org/x"]
    policy = make.policy(patch={"metadata": {key: value}})
    trigger = world.cluster.add(make.object(data={"key": field}))
    request = await world.ask(world.install(policy), trigger)
    ended = await world.processor.attempt(request, 0.0)
    (result,) = ended.targets
    if allowed:
        assert result.outcome is Outcome.PATCHED
        return
    assert result.outcome is Outcome.FAILED
    assert f"metadata.{field}" in result.message
    assert f"--allow-metadata={field}" in result.message
    assert await world.read(target) == target


def test_only_guarded_metadata_can_be_allowed() -> None:
    with pytest.raises(InvalidSetting, match="uid is not guarded"):
        Protection.of(ControllerSettings(allow_metadata="uid, finalizers"))
