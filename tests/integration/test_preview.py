"""`retrofit preview` and `retrofit apply --cluster` on a real API server, without writes."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from devcluster.cluster import Cluster, ControlPlane
from devcluster.waiting import wait_until
from reconciler.api.meta import Object
from reconciler.cli.main import retrofit
from tests.faults.rig import Rig, config_map, rule, target
from tests.faults.siblings import open_sibling

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.data.mode }}"}}
EACH = "target-{{ request.object.data.n }}"


def policy_of(name: str, *rules: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {**spec, "rules": list(rules)},
    }


@dataclass(frozen=True)
class Desk:
    """Runs `retrofit` commands on the files of a folder and the objects of a namespace."""

    cluster: Cluster
    namespace: str
    folder: Path

    def create(self, *objects: Object) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(listed), within=120)

    def write(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps(value))
        return str(path)

    def policy(self, *rules: Object, **spec: Any) -> str:
        return self.write("policy.json", policy_of("previewed", *rules, **spec))

    def run(self, *words: str, kubeconfig: Path | None = None) -> Result:
        address = ("--kubeconfig", str(kubeconfig or self.cluster.kubeconfig))
        done = CliRunner().invoke(retrofit, [*words, *address])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def preview(self, *words: str, kubeconfig: Path | None = None, code: int = 0) -> Any:
        """Return the output of `retrofit preview -o json`."""
        done = self.run("preview", *words, "-o", "json", kubeconfig=kubeconfig)
        assert done.exit_code == code, done.stderr + done.stdout
        return json.loads(done.stdout)

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of each object of the kinds that these tests use."""
        kinds = "configmaps,secrets,deployments"
        found = json.loads(self.cluster.kubectl("get", kinds, "-n", self.namespace, "-o", "json"))
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for item in found["items"]
        }


@pytest.fixture
def desk(control_plane: Cluster, namespace: str, tmp_path: Path) -> Desk:
    return Desk(control_plane, namespace, tmp_path)


@pytest.fixture
def unchanged(desk: Desk) -> Callable[[], None]:
    """A function that asserts that no object of the namespace changed since its first call."""
    known: list[dict[str, str]] = []

    def check() -> None:
        known.append(desk.versions())
        assert known[0] == known[-1]

    return check


def counts(data: Any, index: int = 0) -> dict[str, int]:
    """Return the counts of a rule that are not zero."""
    found = data["rules"][index]["counts"]
    return {name: count for name, count in found.items() if count}


def said(text: str) -> list[str]:
    """Return the patches of an output, or its diff lines without context, sorted."""
    if text.startswith("["):
        return sorted(json.dumps(item, sort_keys=True) for item in json.loads(text))
    return sorted(line for line in text.splitlines() if line[:1] not in (" ", "@"))


def names(changes: Any) -> set[str]:
    return {item["target"]["name"] for item in changes}


def requests_of(cluster: ControlPlane, namespace: str) -> list[Object]:
    """Return the calls of kube-retrofit in a namespace, from the audit log."""
    assert cluster.audit_log is not None
    log = cluster.audit_log
    mark = "marker-of-the-end"
    cluster.kubectl("get", "configmap", mark, "-n", namespace, "--ignore-not-found")
    wait_until(
        lambda: any(mark in line and namespace in line for line in log.read_text().splitlines()),
        within=15.0,
        what="the audit log is up to date",
    )
    events = (json.loads(line) for line in log.read_text().splitlines())
    return [
        event
        for event in events
        if event["userAgent"].startswith("kube-retrofit")
        and (event.get("objectRef") or {}).get("namespace") == namespace
    ]


def test_a_preview_shows_counts_and_diffs_and_writes_nothing(
    desk: Desk, control_plane: Cluster, unchanged: Callable[[], None]
) -> None:
    place = desk.namespace
    desk.create(
        config_map(place, "trigger-1", n="1", mode="strict"),
        config_map(place, "trigger-2", n="2", mode="strict"),
        config_map(place, "trigger-3", n="3", mode="strict"),
        config_map(place, "target-1", got="lax"),
        config_map(place, "target-2", got="strict"),
    )
    unchanged()
    policy = desk.policy(rule(place, [target(place, EACH)], GOT))
    done = desk.run("preview", policy, "--server-dry-run")
    assert done.exit_code == 0, done.stderr
    head, row, *rest = done.stdout.splitlines()
    assert head.split()[:3] == ["POLICY", "RULE", "ON"]
    assert head.split()[5:] == ["CHANGED", "UNCHANGED", "MISSING"]
    assert row.split() == ["previewed", "rule", "UPDATE", "3", "3", "1", "1", "1"]
    text = "\n".join(rest)
    assert f"ConfigMap {place}/target-1, triggered by ConfigMap {place}/trigger-1\n" in text
    assert text.endswith("\n-  got: lax\n+  got: strict")
    assert text.count("@@") == 2
    assert "managedFields" not in text
    unchanged()
    if isinstance(control_plane, ControlPlane):
        sent = requests_of(control_plane, place)
        written = [event for event in sent if event["verb"] not in ("get", "list")]
        assert [event["verb"] for event in written] == ["patch"]
        assert "dryRun=All" in written[0]["requestURI"]


def test_a_server_dry_run_shows_targets_that_would_be_refused(
    desk: Desk, unchanged: Callable[[], None]
) -> None:
    place = desk.namespace
    fixed = {**config_map(place, "target-2", got="lax"), "immutable": True}
    desk.create(
        config_map(place, "trigger-1", n="1", mode="strict"),
        config_map(place, "trigger-2", n="2", mode="strict"),
        config_map(place, "target-1", got="lax"),
        fixed,
    )
    unchanged()
    policy = desk.policy(rule(place, [target(place, EACH)], GOT))
    assert counts(desk.preview(policy))["changed"] == 2
    data = desk.preview(policy, "--server-dry-run", code=1)
    found = counts(data)
    assert found.pop("read") >= 4
    assert found == {"triggers": 2, "targets": 2, "changed": 1, "refused": 1}
    (problem,) = data["rules"][0]["problems"]
    assert problem["verdict"] == "refused"
    assert problem["target"]["name"] == "target-2"
    assert "immutable" in problem["message"]
    assert names(data["rules"][0]["changes"]) == {"target-1"}
    assert data["complete"]
    unchanged()


async def test_a_server_dry_run_shows_targets_that_another_webhook_denies(
    rig: Rig, tmp_path: Path
) -> None:
    place = rig.namespace
    desk = Desk(rig.cluster, place, tmp_path)
    patch = {"metadata": {"labels": {"{{ request.object.data.label }}": "yes"}}}
    await rig.create_all(
        [
            config_map(place, "trigger-1", n="1", label="deny"),
            config_map(place, "trigger-2", n="2", label="fine"),
            config_map(place, "target-1"),
            config_map(place, "target-2"),
        ]
    )
    # A stored policy is previewed; from here on a changed trigger would fire its rule.
    await rig.apply(rule(place, [target(place, EACH)], patch))
    async with open_sibling(rig):
        before = await asyncio.to_thread(desk.versions)
        data = await asyncio.to_thread(
            desk.preview, f"clusterpolicy/{place}", "--server-dry-run", code=1
        )
        assert await asyncio.to_thread(desk.versions) == before
    (problem,) = data["rules"][0]["problems"]
    assert (problem["verdict"], problem["target"]["name"]) == ("refused", "target-1")
    assert "the sibling does not like it" in problem["message"]
    assert names(data["rules"][0]["changes"]) == {"target-2"}
    assert await rig.requests() == []


def test_a_preview_with_few_rights_reports_the_missing_rights(
    desk: Desk, unchanged: Callable[[], None]
) -> None:
    place = desk.namespace
    cluster = desk.cluster
    cluster.kubectl("create", "serviceaccount", "reader", "-n", place)
    for verbs, resource in (("get,list", "configmaps"), ("list", "deployments.apps")):
        name = f"read-{resource.partition('.')[0]}"
        cluster.kubectl(
            "create", "role", name, "-n", place, f"--verb={verbs}", f"--resource={resource}"
        )
        who = f"--serviceaccount={place}:reader"
        cluster.kubectl("create", "rolebinding", name, "-n", place, f"--role={name}", who)
    desk.create(
        config_map(place, "trigger-1", n="1", mode="strict"),
        config_map(place, "target-1", got="lax"),
    )
    unchanged()
    account = cluster.service_account_kubeconfig(place, "reader")
    secrets_too = rule(
        place, [target(place, EACH), target(place, "s", "Secret")], GOT, name="secrets"
    )
    anywhere = rule(place, [target(place, EACH)], GOT, name="anywhere")
    del anywhere["match"]["any"][0]["resources"]["namespaces"]
    policy = desk.policy(rule(place, [target(place, EACH)], GOT), secrets_too, anywhere)
    data = desk.preview(policy, "--server-dry-run", kubeconfig=account, code=1)
    plain, secrets, everywhere = data["rules"]
    assert plain["counts"]["refused"] == 1
    assert f"grant: patch configmaps in namespace {place}" in plain["problems"][0]["message"]
    assert secrets["counts"]["error"] == 1
    assert everywhere["counts"]["read"] == 0
    assert "cannot list resource" in everywhere["failures"][0]
    assert data["missingPermissions"] == [
        f"get secrets in namespace {place}",
        "list configmaps",
        f"patch configmaps in namespace {place}",
    ]
    data = desk.preview(policy, "-n", place, kubeconfig=account, code=1)
    assert [item["counts"]["changed"] for item in data["rules"]] == [1, 0, 0]
    # A later rule sees the changes that an earlier rule would have made.
    assert [item["counts"]["unchanged"] for item in data["rules"]] == [0, 1, 1]
    assert [item["failures"] for item in data["rules"]] == [[], [], []]
    # With --as the preview has the rights of the impersonated ServiceAccount.
    user = f"system:serviceaccount:{place}:reader"
    assert desk.preview(policy, "--as", user, code=1)["rules"][2]["failures"]
    unchanged()


def test_a_policy_that_names_an_account_is_previewed_with_its_rights(desk: Desk) -> None:
    place, kubectl = desk.namespace, desk.cluster.kubectl
    for name, flags in (
        ("bot", ("--verb=get,list", "--resource=configmaps", "--resource-name=target-1")),
        ("guest", ("--verb=get,list", "--resource=configmaps")),
    ):
        kubectl("create", "serviceaccount", name, "-n", place)
        kubectl("create", "role", name, "-n", place, *flags)
        who = f"--serviceaccount={place}:{name}"
        kubectl("create", "rolebinding", name, "-n", place, f"--role={name}", who)
    desk.create(
        config_map(place, "trigger-1", n="1", mode="strict"), config_map(place, "target-1")
    )
    made = policy_of("named", rule(place, [target(place, EACH)], GOT))
    made["metadata"]["annotations"] = {"kube-retrofit.dev/service-account": f"{place}/bot"}
    policy = desk.write("named.json", made)
    # The account may not list the triggers, although the administrator may.
    (found,) = desk.preview(policy, code=1)["rules"]
    assert found["notes"][0] == f"as ServiceAccount {place}:bot, in whose name the policy works"
    assert f'User "system:serviceaccount:{place}:bot" cannot list' in found["failures"][0]
    guest = desk.cluster.service_account_kubeconfig(place, "guest")
    (found,) = desk.preview(policy, kubeconfig=guest)["rules"]
    assert "you may not impersonate it" in found["notes"][0]
    assert found["counts"]["changed"] == 1


def test_a_preview_fails_where_it_differs_from_its_baseline(desk: Desk) -> None:
    place = desk.namespace
    desk.create(
        config_map(place, "trigger-1", n="1", mode="strict"),
        config_map(place, "trigger-2", n="2", mode="strict"),
        config_map(place, "target-1"),
        config_map(place, "target-2"),
    )
    policy = desk.policy(rule(place, [target(place, EACH)], GOT))
    file = str(desk.folder / "touched.yaml")
    assert desk.run("preview", policy, "--write-baseline", file).exit_code == 0
    assert desk.run("preview", policy, "--baseline", file).exit_code == 0
    desk.cluster.kubectl("delete", "configmap", "trigger-1", "-n", place)
    desk.create(
        config_map(place, "trigger-3", n="3", mode="strict"), config_map(place, "target-3")
    )
    data = desk.preview(policy, "--baseline", file, code=1)
    found = data["baseline"]
    assert [[item["name"] for item in found[side]] for side in ("missing", "unexpected")] == [
        ["target-1"],
        ["target-3"],
    ]
    done = desk.run("preview", policy, "--baseline", file, "--limit", "1")
    assert done.exit_code == 1
    assert f"- ConfigMap {place}/target-1: would not be changed\n" in done.stdout
    assert f"+ ConfigMap {place}/target-3: is not in the baseline\n" in done.stdout
    assert "1 change more: --limit 0 shows all" in done.stdout


def test_no_baseline_is_written_by_an_incomplete_preview(desk: Desk) -> None:
    place = desk.namespace
    desk.create(config_map(place, "trigger-1"))
    unresolved = target(place, "{{ request.object.data.none }}")
    file = desk.folder / "touched.yaml"
    done = desk.run(
        "preview", desk.policy(rule(place, [unresolved], GOT)), "--write-baseline", str(file)
    )
    assert done.exit_code == 1
    assert "not written" in done.stderr
    assert not file.exists()


def test_entries_are_read_from_the_cluster(desk: Desk, unchanged: Callable[[], None]) -> None:
    place = desk.namespace
    desk.create(
        config_map(place, "trigger-1", n="1"),
        config_map(place, "settings", word="live"),
        config_map(place, "target-1"),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": place},
            "stringData": {"word": "open-sesame"},
        },
    )
    unchanged()
    api = f"/api/v1/namespaces/{place}"
    review = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
    entries = [
        {"name": "settings", "configMap": {"name": "settings", "namespace": place}},
        {
            "name": "secret",
            "apiCall": {"urlPath": f"{api}/secrets/s", "jmesPath": "base64_decode(data.word)"},
        },
        {
            "name": "review",
            "apiCall": {
                "urlPath": "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "method": "POST",
                "data": [{"key": "spec", "value": review}],
                "jmesPath": "status.allowed",
            },
        },
    ]
    text = "{{ settings.data.word }} {{ secret }} {{ review }}"
    made = rule(place, [target(place, EACH)], {"data": {"got": text}}, context=entries)
    done = desk.run("preview", desk.policy(made))
    assert done.exit_code == 0, done.stdout
    assert '+  got: "live *** true"\n' in done.stdout
    assert "sesame" not in done.stdout
    unchanged()


def test_a_rule_on_policy_updates_is_previewed_without_an_operation(desk: Desk) -> None:
    place = desk.namespace
    desk.create(config_map(place, "trigger-1", n="1", mode="a"), config_map(place, "target-1"))
    made = rule(place, [target(place, EACH)], {"data": {"got": "{{ request.operation }}x"}})
    made["mutate"]["mutateExistingOnPolicyUpdate"] = True
    policy = desk.policy(made)
    assert desk.preview(policy)["rules"][0]["operation"] == ""
    (change,) = desk.preview(policy, "--operation", "CREATE")["rules"][0]["changes"]
    assert change["patch"][0]["value"] == {"got": "CREATEx"}


def test_a_preview_of_many_triggers_sends_few_requests(desk: Desk) -> None:
    place = desk.namespace
    count = 1000
    desk.create(
        *(config_map(place, f"trigger-{n}", n=str(n), mode="strict") for n in range(count)),
        *(config_map(place, f"target-{n}") for n in range(count)),
    )
    policy = desk.policy(rule(place, [target(place, EACH)], GOT))
    data = desk.preview(policy)
    assert counts(data)["changed"] == count
    assert len(data["rules"][0]["changes"]) == 20
    assert data["rules"][0]["changesLeftOut"] == count - 20
    # One read for each target, the pages of the triggers, which contain ConfigMaps of other tests
    # too, and discovery.
    names = desk.cluster.kubectl("get", "configmaps", "-A", "-o", "name").splitlines()
    assert data["requests"] <= count + len(names) // 500 + 8


def test_apply_shows_the_same_for_a_cluster_as_for_files(
    desk: Desk, unchanged: Callable[[], None]
) -> None:
    place = desk.namespace
    desk.create(
        config_map(place, "trigger-1", n="1", mode="strict"),
        config_map(place, "trigger-2", n="2", mode="strict"),
        config_map(place, "target-1", got="lax"),
        config_map(place, "target-2", got="strict"),
    )
    unchanged()
    own = {
        "name": "own",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["trigger-*"]}}]},
        "mutate": {"patchStrategicMerge": {"data": {"own": "yes"}}},
    }
    policy = desk.policy(rule(place, [target(place, EACH)], GOT), own)
    items = desk.cluster.kubectl("get", "configmap", "-n", place, "-o", "json")
    files = desk.write("objects.json", json.loads(items))
    for output in ("diff", "patch"):
        live = desk.run("apply", policy, "--cluster", "-n", place, "-o", output)
        offline = CliRunner().invoke(retrofit, ["apply", policy, "-r", files, "-o", output])
        assert live.exit_code == offline.exit_code == 0, live.stderr
        # kubectl sorts the fields of its output, and the API server does not.
        assert said(live.stdout) == said(offline.stdout)
    listed = desk.run("apply", policy, "--cluster", "-n", place, "-o", "json", "--check")
    assert listed.exit_code == 1
    found = {item["metadata"]["name"]: item for item in json.loads(listed.stdout)["items"]}
    assert set(found) == {"trigger-1", "trigger-2", "target-1"}
    assert found["target-1"]["data"]["got"] == "strict"
    assert "managedFields" not in found["target-1"]["metadata"]
    unchanged()


def test_apply_accepts_a_trigger_that_is_not_stored_yet(desk: Desk) -> None:
    place = desk.namespace
    desk.create(config_map(place, "target-1"), config_map(place, "trigger-2", n="1", mode="a"))
    policy = desk.policy(rule(place, [target(place, EACH)], GOT))
    trigger = desk.write("trigger.json", config_map(place, "trigger-1", n="1", mode="strict"))
    done = desk.run("apply", policy, "--cluster", "-r", trigger, "-o", "patch")
    assert done.exit_code == 0, done.stderr
    (change,) = json.loads(done.stdout)
    assert change["trigger"]["name"] == "trigger-1"
    assert change["patch"][0]["value"] == {"got": "strict"}


def test_apply_names_the_right_that_it_lacks(desk: Desk) -> None:
    place = desk.namespace
    policy = desk.policy(rule(place, [target(place, EACH)], GOT))
    account = desk.cluster.service_account_kubeconfig(place, "default")
    done = desk.run("apply", policy, "--cluster", kubeconfig=account)
    assert done.exit_code == 1
    assert f"grant: list configmaps in namespace {place}" in done.stderr


def test_a_cluster_without_crds_or_without_an_answer_is_an_error(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    desk = Desk(own_control_plane, "default", tmp_path)
    done = desk.run("preview", "cpol/reload")
    assert done.exit_code == 2
    assert done.stderr == "Error: policy reload: the cluster knows no policies, so name a file\n"
    wrong = desk.folder / "kubeconfig"
    text = own_control_plane.service_account_kubeconfig("default", "default").read_text()
    (token,) = [word for word in text.split() if word.strip('"').startswith("ey")]
    wrong.write_text(text.replace(token.strip('"'), "nonsense"))
    policy = desk.policy(rule("default", [target("default", EACH)], GOT))
    done = desk.run("preview", policy, kubeconfig=wrong)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "does not accept the credentials" in done.stderr
    assert "renew it; this is the current context: name another" in done.stderr
    own_control_plane.kill_apiserver()
    done = desk.run("preview", policy)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "does not answer (connection refused)" in done.stderr


def test_a_preview_does_not_count_filtered_triggers(
    installed_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    own = {"apiVersion": "v1", "kind": "Namespace", "name": "{{ request.object.metadata.name }}"}
    # Only these names, because other tests create and delete namespaces.
    named = {"kinds": ["Namespace"], "names": [namespace, "kube-system"]}
    label = {
        "name": "label",
        "match": {"any": [{"resources": named}]},
        "mutate": {
            "targets": [own],
            "mutateExistingOnPolicyUpdate": True,
            "patchStrategicMerge": {"metadata": {"labels": {"seen": "yes"}}},
        },
    }
    desk = Desk(installed_cluster, "", tmp_path)
    path = desk.policy(label)
    found = desk.preview(path, "--limit", "0")
    assert counts(found)["triggers"] == counts(found)["changed"] == 1
    assert names(found["rules"][0]["changes"]) == {namespace}
    shown = desk.run("preview", path).stdout
    assert "match, but no trigger (1): filtered by resourceFilters [*/*,kube-system,*]" in shown
