"""The webhook's responses to writes of policies."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import yaml
from typing_extensions import override

from admission.decide import AdmissionResponse
from admission.policies import PolicyWebhook
from reconciler.api.meta import Kind
from reconciler.api.updaterequest import RequestStatus, State
from reconciler.clock import SystemClock
from reconciler.errors import Forbidden, Unavailable
from reconciler.installation import BESIDE
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.recording.diversion import Diversion
from reconciler.serving.review import parse_review
from tests.stored import MemoryRequests
from tests.unit.admission.conftest import Compiler, Make
from tests.unit.rights import Account

ACCOUNT = "kyverno:kyverno-background-controller"


@pytest.fixture
def review(make: type[Make]) -> Callable[..., Awaitable[AdmissionResponse]]:
    """Return the response to a write of a policy; with `old`, the write is an update."""

    async def run(policy, old=None, account=None, budget=5.0, **deps):
        operation = "CREATE" if old is None else "UPDATE"
        request = parse_review(make.review(operation, policy, old))
        deadline = make.deadline(budget)
        return await PolicyWebhook(make.deps(account, **deps)).review(request, deadline)

    return run


def targeting(make, *targets, namespace="", **rule):
    policy = make.policy(namespace=namespace, **rule)
    policy["spec"]["rules"][0]["mutate"]["targets"] = list(targets)
    return policy


def secret(**fields):
    return {"apiVersion": "v1", "kind": "Secret", **fields}


async def test_a_policy_that_compiles_is_stored(make, review):
    found = await review(make.policy())
    assert (found.allowed, found.warnings) == (True, ())


async def test_an_object_that_is_not_a_policy_is_refused_by_its_kind(make, review):
    found = await review(make.thing())
    assert (found.allowed, found.code) == (False, 400)
    assert "ConfigMap, this webhook is for ClusterPolicy, Policy" in found.message


@pytest.mark.parametrize("is_update", [False, True])
async def test_the_event_loop_keeps_running_while_a_large_policy_is_checked(
    make, review, is_update
):
    policy, old = make.policy(), make.policy()
    keys = (f"{{{{ request.object.data.k{number} }}}}" for number in range(1_500))
    conditions = [{"key": key, "operator": "Equals", "value": "a"} for key in keys]
    policy["spec"]["rules"][0]["preconditions"] = {"all": conditions}
    old["spec"]["rules"][0]["preconditions"] = {"all": conditions[1:]}
    # On a busy machine the loop below leaves the thread little time of the interpreter.
    checking = review(policy, old if is_update else None, budget=60.0)
    task, longest, last = asyncio.create_task(checking), 0.0, time.thread_time()
    while not task.done():
        await asyncio.sleep(0)
        # The CPU time of this thread does not depend on what else the machine does.
        longest, last = max(longest, time.thread_time() - last), time.thread_time()
    assert (await task).allowed
    assert longest < 0.1


async def test_every_rule_that_does_not_compile_is_reported_with_its_place(make, review):
    policy = make.policy(patch=None)
    del policy["spec"]["rules"][0]["mutate"]["targets"][0]["kind"]
    policy["spec"]["rules"].append({**make.policy()["spec"]["rules"][0], "name": "b", "match": {}})
    found = await review(policy)
    assert (found.allowed, found.code) == (False, 422)
    first, *others = found.message.splitlines()
    assert first.startswith("ClusterPolicy set-team: spec.rules[0].mutate")
    assert any(line.startswith("spec.rules[1].match: ") for line in others)


async def test_every_error_in_a_rule_is_reported_at_once(make, review):
    policy = make.policy(patch={"a": "{{ nobody }}", "b": "{{ request( }}"})
    policy["spec"]["rules"][0]["match"] = {"any": [{"resources": {"kinds": [""]}}]}
    found = await review(policy)
    assert [line.partition(": ")[0] for line in found.message.splitlines()] == [
        "ClusterPolicy set-team",
        "spec.rules[0].mutate.patchStrategicMerge.a",
        "spec.rules[0].mutate.patchStrategicMerge.b",
    ]
    assert "spec.rules[0].match.any[0].resources.kinds[0]" in found.message


async def test_a_broken_policy_can_still_be_labelled_and_removed(make, review):
    policy = make.policy()
    policy["spec"]["rules"][0]["match"] = {}
    labelled = {**policy, "metadata": {**policy["metadata"], "labels": {"a": "b"}}}
    dying = {
        "apiVersion": "kyverno.io/v1",
        **policy,
        "metadata": {**policy["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"rules": []},
    }
    assert not (await review(policy)).allowed
    assert (await review(labelled, policy)).allowed
    assert (await review(dying, policy)).allowed


async def test_a_change_of_labels_only_causes_no_access_review_and_no_warning(make, review):
    account = Account(lacks={"update secrets", "patch secrets"})
    policy = targeting(make, secret(name="s"))
    labelled = {**policy, "metadata": {**policy["metadata"], "labels": {"a": "b"}}}
    found = await review(labelled, policy, account)
    assert (found.allowed, found.warnings, account.asked) == (True, (), [])
    changed = {**policy, "spec": {**policy["spec"], "background": False}}
    assert not (await review(changed, policy, account)).allowed


async def test_a_rule_that_is_stored_and_not_acted_on_gives_a_warning(make, review):
    policy = make.policy()
    policy["spec"]["rules"].append(
        {
            "name": "check",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "validate": {"message": "no", "pattern": {"metadata": {"name": "?*"}}},
        }
    )
    found = await review(policy)
    assert found.allowed
    assert any("check" in text for text in found.warnings)


async def test_conditions_that_do_not_compile_are_refused_with_their_place(make, review):
    conditions = [{"name": "a", "expression": "true"}, {"name": "b", "expression": "tru("}]
    policy = make.policy(spec={"webhookConfiguration": {"matchConditions": conditions}})
    found = await review(policy, compiler=Compiler("tru("))
    assert (found.allowed, found.code) == (False, 422)
    place = "spec.webhookConfiguration.matchConditions[1].expression"
    assert found.message.startswith(f"ClusterPolicy set-team: {place}: Invalid value")
    assert (await review(policy)).allowed
    lacking = Forbidden("no; grant: patch it", permission="patch it")
    found = await review(policy, compiler=Compiler(broken=lacking))
    assert (found.allowed, found.code) == (False, 503)
    assert "whether matchConditions compile cannot be checked now: no; grant" in found.message
    conditions[1]["name"] = "a"
    assert "matchConditions[1].name: duplicate condition name" in (await review(policy)).message


async def test_a_lint_error_is_refused(make, review):
    node = {"apiVersion": "v1", "kind": "Node", "namespace": "a", "name": "n"}
    found = await review(targeting(make, node))
    assert (found.allowed, found.code) == (False, 422)
    assert found.message == (
        "ClusterPolicy set-team: spec.rules[0].mutate.targets[0]: Node is cluster-scoped, so no"
        " namespace contains such an object; remove the namespace of the target"
    )


async def test_lint_warnings_are_returned_as_short_warnings(make, review):
    policy = targeting(make, secret(name="s"), patch=None)
    mutate = policy["spec"]["rules"][0]["mutate"]
    del mutate["patchStrategicMerge"]
    mutate["patchesJson6902"] = "- {op: add, path: /data/list/-, value: x}"
    found = await review(policy)
    assert found.allowed
    assert len(found.warnings) == 2
    assert any("in all namespaces" in text for text in found.warnings)
    assert any("appends another element" in text for text in found.warnings)
    assert all(len(text) < 200 for text in found.warnings)


async def test_the_number_of_warnings_is_limited(make, review):
    found = await review(targeting(make, *(secret(name=f"s{n}") for n in range(30))))
    assert len(found.warnings) == 10
    assert found.warnings[-1] == "21 more warnings: `retrofit lint` lists them all"


async def test_a_missing_right_is_refused_with_the_role_to_apply(make, review):
    account = Account(lacks={"update secrets", "patch secrets", "list secrets"})
    policy = targeting(make, secret(namespace="{{ request.namespace }}"), secret(name="s"))
    found = await review(policy, account=account)
    assert (found.allowed, found.code) == (False, 403)
    head, _, role = found.message.partition("\n\n")
    lines = head.splitlines()
    assert lines[0] == (
        "ClusterPolicy set-team: spec.rules[0].mutate.targets[0]: auth check fails, additional"
        f" privileges are required for the service account '{ACCOUNT}': it may not list secrets,"
        " update secrets"
    )
    assert lines[1].startswith("spec.rules[0].mutate.targets[1]: auth check fails")
    assert lines[2] == "Apply this ClusterRole, then the policy again:"
    assert yaml.safe_load(role) == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "retrofit:set-team",
            "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
        },
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "patch", "update"]}
        ],
    }


async def test_a_role_in_one_namespace_is_suggested_if_it_is_enough(make, review):
    account = Account(lacks={"update secrets", "patch secrets"})
    policy = targeting(make, secret(name="s"), namespace="shop")
    found = await review(policy, account=account)
    assert "it may not update secrets in namespace shop\n" in found.message
    assert "(or grant the same by a Role in namespace shop)" in found.message
    assert "name: retrofit:shop:set-team\n" in found.message


async def test_the_right_to_update_or_to_patch_is_enough(make, review):
    for missing in ("update", "patch"):
        account = Account(lacks={f"{missing} secrets"})
        assert (await review(targeting(make, secret(name="s")), account=account)).allowed


async def test_a_trigger_kind_that_is_not_served_gives_a_warning(make, review):
    found = await review(make.policy(resources={"kinds": ["Pod", "Deployment*", "Gadget"]}))
    assert found.allowed
    assert found.warnings == (
        "spec.rules[0].match: the cluster does not serve Gadget, so nothing fires it yet",
    )


async def test_a_missing_right_on_triggers_is_refused_with_the_role_to_apply(make, review):
    account = Account(lacks={"get secrets", "list secrets"})
    policy = make.policy(resources={"kinds": ["Secret"]})
    policy["spec"]["rules"][0]["mutate"]["mutateExistingOnPolicyUpdate"] = True
    policy["spec"]["rules"][0]["mutate"]["targets"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "a", "name": "web"}
    ]
    found = await review(policy, account=account)
    assert (found.allowed, found.code) == (False, 403)
    head, _, role = found.message.partition("\n\n")
    assert head.startswith(
        "ClusterPolicy set-team: spec.rules[0].match: auth check fails, additional privileges are"
        f" required for the service account '{ACCOUNT}': it may not get secrets, list secrets\n"
    )
    (rule,) = yaml.safe_load(role)["rules"]
    assert rule == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}


async def test_a_role_that_is_applied_shortly_after_its_policy_is_waited_for(make, review):
    @dataclass
    class Growing(Account):
        @override
        async def may(self, right):
            if len(self.asked) > 8:
                self.lacks.clear()
            return await super().may(right)

    account = Growing(lacks={"update secrets", "patch secrets"})
    found = await review(targeting(make, secret(name="s")), account=account, patience=30.0)
    assert found.allowed, found.message


async def test_a_dry_run_gets_a_warning_about_a_missing_right(make):
    request = parse_review(
        make.review("CREATE", targeting(make, secret(namespace="a", name="s")), dryRun=True)
    )
    account = Account(lacks={"update secrets", "patch secrets"})
    deps = make.deps(account, patience=30.0)
    found = await PolicyWebhook(deps).review(request, make.deadline())
    assert found.allowed
    (warning,) = found.warnings
    assert warning == (
        "spec.rules[0].mutate.targets[0]: refused unless a role grants the controller update"
        " secrets in namespace a"
    )


async def test_a_trigger_kind_that_resource_filters_exclude_gives_a_warning(make, review):
    shipped = "[Node,*,*][Node/?*,*,*][*/*,kube-system,*]"
    found = await review(make.policy(resources={"kinds": ["Node"]}), filters=shipped)
    assert found.allowed
    assert found.warnings == (
        "spec.rules[0].match: nothing ever fires it: resourceFilters leave out Node ([Node,*,*])",
    )
    found = await review(make.policy(resources={"kinds": ["Node", "Pod"]}), filters=shipped)
    assert found.warnings == (
        "spec.rules[0].match: Node never fires it: resourceFilters leave it out ([Node,*,*])",
    )
    assert (await review(make.policy(), filters=shipped)).warnings == ()


async def test_a_target_of_a_kind_that_is_not_served_is_refused(make, review):
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "name": "g"}
    found = await review(targeting(make, gadget))
    assert (found.allowed, found.code) == (False, 422)
    assert found.message == (
        "ClusterPolicy set-team: spec.rules[0].mutate.targets[0]: the cluster does not serve"
        " example.com/v1 Gadget; correct apiVersion and kind, or install its"
        " CustomResourceDefinition first"
    )


async def test_a_target_kind_that_was_just_installed_is_found(make, review):
    served = MemoryKinds()
    gadgets = Kind(
        group="example.com", version="v1", kind="Gadget", plural="gadgets", namespaced=False
    )
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "name": "g"}
    forget = lambda: served.serve(gadgets)  # noqa: E731
    found = await review(targeting(make, gadget), kinds=served, forget=forget)
    assert found.allowed, found.message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unavailable("the API server does not answer"), ["does not answer; try again"]),
        (
            Forbidden("no; grant: create subjectaccessreviews", permission="create s"),
            ["grant: create subjectaccessreviews", "kyverno:admission-controller:core"],
        ),
    ],
)
async def test_a_failed_access_review_refuses_the_policy_with_the_reason(
    make, review, error, words
):
    found = await review(make.policy(), account=Account(broken=error))
    assert (found.allowed, found.code) == (False, 503)
    assert "whether the controller may change the targets cannot be checked now" in found.message
    assert all(word in found.message for word in words)


async def test_beside_kyverno_the_suggested_role_is_that_of_the_installation(make, review):
    error = Forbidden("no", permission="create s")
    refused = await review(make.policy(), account=Account(broken=error), installation=BESIDE)
    assert "the role kube-retrofit-beside:admission-controller:core has this" in refused.message


async def test_a_check_that_takes_too_long_ends_with_the_budget(make, review):
    class Silent(MemoryKinds):
        @override
        async def find(self, api_version, kind):
            await asyncio.Event().wait()

    found = await review(make.policy(), kinds=Silent(), budget=0.01)
    assert (found.allowed, found.code) == (False, 503)
    assert "no answer within 0.01 s; try again" in found.message


async def test_a_policy_that_waits_too_long_to_be_compiled_is_refused(make):
    deps = make.deps()
    request = parse_review(make.review("CREATE", make.policy(), None))
    async with deps.compiling, asyncio.timeout(5):
        found = await PolicyWebhook(deps).review(request, make.deadline(0.01))
    assert (found.allowed, found.code) == (False, 503)
    assert "no answer within 0.01 s; try again" in found.message


async def test_rate_annotations_are_validated_even_if_the_spec_is_unchanged(make, review):
    policy = make.policy()

    def annotated(name, value):
        marks = {f"kube-retrofit.dev/{name}": value}
        return {**policy, "metadata": {**policy["metadata"], "annotations": marks}}

    assert (await review(annotated("rate", "10/s"), policy)).allowed
    for old in (policy, None):
        found = await review(annotated("rate", "fast"), old)
        assert (found.allowed, found.code) == (False, 422)
        place = "metadata.annotations[kube-retrofit.dev/rate]"
        assert f"{place}: 'fast' is not a rate" in found.message
    # A bad value that was stored while the webhook was down does not block other changes.
    assert (await review(annotated("rate", "fast"), annotated("rate", "fast"))).allowed
    (warning,) = (await review(annotated("pause", "true"), policy)).warnings
    assert "nothing reads this annotation" in warning


async def test_rights_are_checked_if_an_annotation_adds_a_sweep(make, review):
    policy = make.policy()
    del policy["spec"]["rules"][0]["mutate"]["targets"]
    mark = {"kube-retrofit.dev/existing": "true"}
    wanted = {**policy, "metadata": {**policy["metadata"], "annotations": mark}}
    account = Account(lacks={"update configmaps", "patch configmaps"})
    assert (await review(policy, account=account)).allowed
    for old in (policy, None):
        found = await review(wanted, old, account=account)
        assert (found.allowed, found.code) == (False, 403)
        assert "spec.rules[0].match: auth check fails" in found.message
        assert "update configmaps" in found.message
    # A policy that is stored already can still be given a label.
    labelled = {**wanted, "metadata": {**wanted["metadata"], "labels": {"a": "b"}}}
    assert (await review(labelled, wanted, account=account)).allowed


@pytest.fixture
async def aggregate(make: type[Make]) -> Callable[..., Awaitable[tuple[MemoryRequests, str]]]:
    """Return a function that stores an aggregate request for the rule, and may complete it."""
    requests = MemoryRequests(MemoryCluster(), "kyverno")
    diversion = Diversion(requests=requests, clock=SystemClock())

    async def divert(ended=False):
        policy = make.index(make.policy()).policies()[0]
        await diversion.divert(policy, policy.programs[0])
        found = [item async for item in requests.waiting()][-1]
        if ended:
            await requests.write_status(found, RequestStatus(state=State.COMPLETED))
        return requests, found.name

    return divert


def on_creation(make):
    return make.policy(resources={"kinds": ["ConfigMap"], "operations": ["CREATE"]})


async def test_an_edit_that_would_lose_waiting_triggers_is_refused(make, review, aggregate):
    await aggregate(ended=True)
    requests, name = await aggregate()
    response = await review(on_creation(make), make.policy(), requests=requests)
    assert (response.allowed, response.code) == (False, 409)
    assert response.message == (
        f"ClusterPolicy set-team: rule copy: UpdateRequest {name} represents admitted triggers"
        " that are found by listing the objects, which is no longer possible after this change"
        " (its match depends on the operation): wait until it is Completed, or delete it to give"
        " up those triggers"
    )


async def test_other_edits_are_allowed_while_triggers_wait(make, review, aggregate):
    requests, _ = await aggregate()
    edited = make.policy(patch={"metadata": {"labels": {"seen": "no"}}})
    assert (await review(edited, make.policy(), requests=requests)).allowed
    assert (await review(make.policy(), on_creation(make), requests=requests)).allowed


async def test_a_completed_aggregate_request_does_not_block_edits(make, review, aggregate):
    requests, _ = await aggregate(ended=True)
    assert (await review(on_creation(make), make.policy(), requests=requests)).allowed


async def test_an_edit_is_refused_with_503_if_waiting_triggers_cannot_be_checked(make, review):
    class Broken(MemoryRequests):
        @override
        async def get(self, name):
            raise Unavailable(f"no {name[:5]} today")

    requests = Broken(MemoryCluster(), "kyverno")
    response = await review(on_creation(make), make.policy(), requests=requests)
    assert (response.allowed, response.code) == (False, 503)
    assert "no sweep today; try again" in response.message


class TestWhatCannotBeVerified:
    """Warnings where the admission server may not read old or deleted objects of a rule."""

    @pytest.fixture
    def warned(
        self, make: type[Make], review: Callable[..., Awaitable[AdmissionResponse]]
    ) -> Callable[..., Awaitable[list[str]]]:
        async def run(verifier, old="", operations=(), **policy):
            made = make.policy(
                resources={"kinds": ["Secret"], "operations": list(operations)},
                patch={"data": {"a": old or "b"}},
                **policy,
            )
            response = await review(made, verifier=verifier)
            assert response.allowed
            return [text for text in response.warnings if "forge" in text]

        return run

    @pytest.mark.parametrize(
        "rule",
        [
            {"operations": ["DELETE"]},
            {"operations": ["CREATE", "DELETE"]},
            {"operations": ["UPDATE"], "old": "{{ request.oldObject.data.a }}"},
            {"old": "{{ request.oldObject.data.a || '' }}"},
        ],
    )
    async def test_unverifiable_objects_give_a_warning_with_the_missing_right(self, warned, rule):
        (text,) = await warned(Account(lacks={"get secrets"}), **rule)
        assert text == (
            "spec.rules[0].match: any client of the webhook can forge old and deleted"
            " objects: grant kyverno-admission-controller get secrets"
        )

    @pytest.mark.parametrize(
        "rule",
        [
            {"operations": ["CREATE", "UPDATE"]},
            {"operations": ["CREATE"], "old": "{{ request.oldObject.data.a || '' }}"},
        ],
    )
    async def test_no_right_is_checked_for_a_rule_that_records_no_object(self, warned, rule):
        verifier = Account(lacks={"get secrets"})
        assert await warned(verifier, **rule) == []
        assert verifier.asked == []

    async def test_the_warning_for_a_namespaced_policy_names_its_namespace(self, warned):
        verifier = Account(lacks={"get secrets"})
        (text,) = await warned(verifier, operations=["DELETE"], namespace="shop")
        assert text.endswith("get secrets in namespace shop")

    @pytest.mark.parametrize(
        ("entry", "reported"),
        [
            (
                {"apiCall": {"urlPath": "/api/v1/namespaces/shop/secrets"}},
                ["list secrets in namespace shop"],
            ),
            (
                {"apiCall": {"urlPath": "/api/v1/namespaces/{{ request.namespace }}/secrets"}},
                ["list secrets"],
            ),
            # The path of this call is only known at the time of a request.
            ({"apiCall": {"urlPath": "/api/v1/{{ request.name }}"}}, []),
            ({"configMap": {"name": "c", "namespace": "shop"}}, []),
        ],
    )
    async def test_an_entry_that_the_admission_server_may_not_read_gives_a_warning(
        self, make, review, entry, reported
    ):
        rule = make.mutating(context=[{"name": "it", **entry}])
        rule["spec"]["rules"][0]["mutate"] = {"patchStrategicMerge": {"data": {"a": "{{ it }}"}}}
        response = await review(rule, reader=Account(lacks={"list secrets"}))
        assert response.allowed
        assert [text.partition(": label")[0] for text in response.warnings] == [
            "spec.rules[0].context[0]: requests that read it fail unless a role grants"
            f" kyverno-admission-controller {right}"
            for right in reported
        ]

    async def test_there_is_no_warning_if_the_right_is_granted_or_cannot_be_checked(self, warned):
        assert await warned(Account(), operations=["DELETE"]) == []
        assert await warned(None, operations=["DELETE"]) == []
        broken = Account(broken=Forbidden("not even that", permission=""))
        assert await warned(broken, operations=["DELETE"]) == []

    async def test_there_is_no_warning_about_an_entry_if_the_right_cannot_be_checked(
        self, make, review
    ):
        entry = {"apiCall": {"urlPath": "/api/v1/namespaces/shop/secrets"}}
        rule = make.mutating(context=[{"name": "it", **entry}])
        broken = Account(broken=Unavailable("no answer"))
        response = await review(rule, reader=broken)
        assert (response.allowed, response.warnings) == (True, ())
