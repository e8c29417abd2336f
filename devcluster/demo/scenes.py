"""The scenes; each demonstrates a feature on real objects, checks it and returns a summary."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from devcluster.demo.stage import Stage
from devcluster.install import NAMESPACE
from devcluster.waiting import wait_until
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, RetrofitError

T = TypeVar("T")
_WITHIN = 30.0
_FLEET = 500


def restart(stage: Stage) -> str:
    """Change a ConfigMap: the Deployments that mount it roll out, the others do not."""
    stage.heading("1  A changed ConfigMap restarts exactly the Deployments that mount it")
    stage.excerpt("config-restart.yaml", "      match:")
    stage.apply_policy("config-restart")
    stage.say("Five Deployments; three of them mount the ConfigMap prices.")
    columns = (
        "NAME:.metadata.name,MOUNTS:.spec..configMap.name,"
        "GENERATION:.metadata.generation,CONFIG-VERSION:.spec..config-version"
    )
    table = ("deployments", "-n", "shop", "-o", f"custom-columns={columns}")
    stage.kubectl("get", *table)
    before = _generations(stage)
    stage.say("Now the ConfigMap changes:")
    change = '{"data":{"currency":"USD"}}'
    stage.kubectl("patch", "configmap", "prices", "-n", "shop", "--patch", change)
    _finished(stage, "config-restart")
    stage.kubectl("get", *table)
    stage.show_requests("config-restart")
    after = _generations(stage)
    rolled = {name for name, generation in after.items() if generation != before[name]}
    _expect(rolled, {"cart", "catalog", "checkout"}, "Deployments that changed")
    fact = f"{len(rolled)} of {len(after)} Deployments restarted: those that mount prices"
    return stage.fact(fact)


def spread(stage: Stage) -> str:
    """Label a namespace: its workloads get the label, those elsewhere do not."""
    stage.heading("2  A new label on a Namespace is spread to the workloads in it")
    stage.excerpt("team-label.yaml", "      match:")
    stage.apply_policy("team-label")
    stage.say("The namespace shop gets the label; the namespace blog does not.")
    stage.kubectl("label", "namespace", "shop", "team=payments")
    _finished(stage, "team-label")
    stage.say("The Deployments and StatefulSets of both:")
    columns = (
        "NAMESPACE:.metadata.namespace,KIND:.kind,NAME:.metadata.name,TEAM:.metadata.labels.team"
    )
    stage.kubectl("get", "deployments,statefulsets", "-A", "-o", f"custom-columns={columns}")
    stage.show_requests("team-label")
    workloads = stage.items("deployments,statefulsets", "-A")
    labelled = [
        item for item in workloads if item["metadata"].get("labels", {}).get("team") == "payments"
    ]
    inside = {_key(item) for item in workloads if item["metadata"]["namespace"] == "shop"}
    _expect({_key(item) for item in labelled}, inside, "workloads with the label")
    fact = f"team=payments on all {len(labelled)} workloads of namespace shop, on none elsewhere"
    return stage.fact(fact)


def roll_out(stage: Stage) -> str:
    """Apply a policy to existing objects and follow its progress."""
    stage.heading(f"3  A policy is rolled out over {_FLEET} existing objects")
    clock = SystemClock()
    began = clock.monotonic()
    with stage.waiting(f"creating {_FLEET} ConfigMaps"):
        stage.cluster.kubectl("create", "-f", "-", stdin="---\n".join(_fleet()))
    took = clock.monotonic() - began
    stage.say(f"{_FLEET} ConfigMaps created in namespace fleet, in {took:.1f} s.")
    stage.excerpt("cost-center.yaml", "      match:")
    stage.apply("cost-center.yaml")
    began = clock.monotonic()
    with stage.bar("status of the request", _FLEET) as show:

        def done() -> bool:
            for request in stage.requests("cost-center"):
                status = request.get("status") or {}
                show((status.get("sweep") or {}).get("done", 0))
                if _final(request):
                    return True
            return False

        wait_until(done, within=_WITHIN, what="the request of policy cost-center is finished")
    took = clock.monotonic() - began
    stage.show_requests("cost-center")
    some = (f"settings-{number:03}" for number in (1, _FLEET // 2, _FLEET))
    stage.kubectl("get", "configmaps", "-n", "fleet", "-L", "cost-center", *some)
    labelled = stage.items("configmaps", "-n", "fleet", "-l", "cost-center=4711")
    _expect(len(labelled), _FLEET, "ConfigMaps with the label")
    fact = f"{_FLEET} existing ConfigMaps changed in {took:.1f} s ({_FLEET / took:.0f} per second)"
    stage.fact(f"{fact}, by one request")
    return fact


def admit(stage: Stage) -> str:
    """Change Pods before they are stored, and existing Deployments by the same rule."""
    stage.heading("4  A sidecar: for Pods before they are stored, and for existing Deployments")
    stage.excerpt("log-agent.yaml", "metadata:")
    stage.apply_policy("log-agent")
    stage.say("A new Pod of the shop:")
    stage.kubectl("run", "visitor", "-n", "shop", "--image=shop/visitor")
    names = "custom-columns=NAME:.metadata.name,CONTAINERS:.spec.containers[*].name"
    stage.kubectl("get", "pod", "visitor", "-n", "shop", "-o", names)
    (pod,) = stage.items("pods", "-n", "shop", "--field-selector=metadata.name=visitor")
    _expect(set(_containers(pod["spec"])), {"visitor", "log-agent"}, "containers of the Pod")
    stage.say("This needed no request. Existing objects are processed by one request per rule:")
    states = {"Completed", "Immutable"}
    _until(
        stage,
        "waiting for the requests",
        lambda: {_state(item) for item in stage.requests("log-agent")} == states,
        "the requests of policy log-agent have come to an end",
    )
    stage.show_requests("log-agent")
    stage.say(
        "The containers of a Pod cannot be changed, so that request waits after one attempt:"
    )
    held = next(it for it in stage.requests("log-agent") if _state(it) == "Immutable")
    name = held["metadata"]["name"]
    stage.sentence("get", "ur", name, "-n", NAMESPACE, "-o", "jsonpath={.status.message}")
    stage.say("Deployments can be changed; they create new Pods:")
    names = "custom-columns=NAME:.metadata.name,CONTAINERS:.spec.template.spec.containers[*].name"
    stage.kubectl("get", "deployments", "-n", "shop", "-o", names)
    deployments = stage.items("deployments", "-n", "shop")
    agents = [
        it for it in deployments if "log-agent" in _containers(it["spec"]["template"]["spec"])
    ]
    _expect(len(agents), len(deployments), "Deployments with the sidecar")
    return stage.fact(f"a new Pod got the sidecar, and so did {len(agents)} existing Deployments")


def forbidden(stage: Stage) -> str:
    """Refuse a policy whose targets the controller may not change; revoke the right later."""
    stage.heading("5  A target that may not be changed, and what to grant")
    stage.say("The controller has only the rights that you grant. It may not change CronJobs yet.")
    stage.excerpt("maintenance.yaml", "      match:")
    said = stage.refused("apply", "-f", "maintenance.yaml")
    _expect("auth check fails" in said, expected=True, what="policy refused")
    stage.say("The refusal ends with the role to apply. With that role, the policy is accepted:")
    stage.apply("grant-cronjobs.yaml")
    _may_suspend(stage, "waiting until the right is in force", granted=True)
    stage.apply_policy("maintenance")
    stage.say("Later, the right is revoked. What happens to the next trigger?")
    stage.kubectl("delete", "clusterrole", "retrofit-cronjobs")
    _may_suspend(stage, "waiting until the right is gone", granted=False)
    stage.kubectl("label", "namespace", "shop", "maintenance=on")
    request = _until(
        stage,
        "waiting for the first attempt",
        lambda: next(filter(_attempted, stage.requests("maintenance")), None),
        "the request of policy maintenance has been tried",
    )
    stage.show_requests("maintenance")
    stage.say("The request stays Pending, and names the cause and the right (as does -o wide):")
    name = request["metadata"]["name"]
    stage.sentence("get", "ur", name, "-n", NAMESPACE, "-o", "jsonpath={.status.message}")
    missing = request["status"].get("missingPermission", "")
    _expect(missing, "patch cronjobs.batch in namespace shop", "missing permission")
    stage.apply("grant-cronjobs.yaml")
    took = _heal(stage)
    stage.show_requests("maintenance")
    stage.kubectl("get", "cronjobs", "-n", "shop")
    (job,) = stage.items("cronjobs", "-n", "shop")
    _expect(job["spec"]["suspend"], expected=True, what="CronJob suspended")
    fact = f"refused with the role to grant; taken away and given back, it went on in {took:.1f} s"
    return stage.fact(fact)


def speak(stage: Stage) -> str:
    """Install another policy language, whose rules change and refuse Pods."""
    stage.heading("6  ModRules, the rules of KubeMod, when they are installed")
    stage.excerpt("shop.modrules.yaml", "spec:")
    stage.install("manifests/dialects/kubemod")
    stage.apply("shop.modrules.yaml")
    stage.kubectl(
        "wait", "--for=condition=Ready", "--timeout=60s", "modrules", "--all", "-n", "shop"
    )
    stage.kubectl("get", "modrules", "-n", "shop")
    stage.say("A Pod with a version, and one without:")
    stage.kubectl("run", "versioned", "-n", "shop", "--image=shop/web:2.1")
    names = "custom-columns=NAME:.metadata.name,IMAGES:.spec.containers[*].image"
    stage.kubectl("get", "pod", "versioned", "-n", "shop", "-o", names)
    said = stage.refused("run", "unversioned", "-n", "shop", "--image=shop/web:latest")
    _expect("unversioned says :latest" in said, expected=True, what="Pod refused")
    (pod,) = stage.items("pods", "-n", "shop", "--field-selector=metadata.name=versioned")
    images = {container["image"] for container in pod["spec"]["containers"]}
    _expect("mirror.example.com/shop/web:2.1" in images, expected=True, what="image of the Pod")
    fact = "a ModRule sent a Pod to the mirror, and another one refused one without a version"
    return stage.fact(fact)


def guard(stage: Stage) -> str:
    """Install a third policy language, whose policies change a Pod and protect a namespace."""
    stage.heading("7  Policies of kinitiras: requests of Pods, and a protected namespace")
    stage.excerpt("archive.kinitiras.yaml", "spec:")
    stage.install("manifests/dialects/kinitiras")
    stage.apply("archive.kinitiras.yaml")
    kinds = "clusteroverridepolicies,clustervalidatepolicies"
    stage.kubectl("wait", "--for=condition=Ready", "--timeout=60s", kinds, "--all")
    stage.say("A Pod with limits and without requests:")
    wait_until(
        lambda: stage.items("serviceaccounts", "-n", "archive"),
        within=_WITHIN,
        what="the new namespace has its default account",
    )
    stage.apply("archive.pod.yaml")
    names = (
        "custom-columns=NAME:.metadata.name,LIMITS:.spec.containers[*].resources.limits,"
        "REQUESTS:.spec.containers[*].resources.requests"
    )
    stage.kubectl("get", "pod", "index", "-n", "archive", "-o", names)
    (pod,) = stage.items("pods", "-n", "archive")
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    _expect(requests, {"cpu": "500m", "memory": "512Mi"}, "requests of the Pod")
    stage.say("Its namespace is deleted twice: without and with a confirmation:")
    said = stage.refused("delete", "namespace", "archive")
    _expect("annotate it with delete=yes first" in said, expected=True, what="deletion refused")
    stage.kubectl("annotate", "namespace", "archive", "delete=yes")
    stage.kubectl("delete", "namespace", "archive", "--wait=false")
    fact = "a Pod got half of its limits as requests; its namespace was deleted once confirmed"
    return stage.fact(fact)


def copy(stage: Stage) -> str:
    """Install hooks, one of which keeps copies of ConfigMaps while the originals exist."""
    stage.heading("8  A hook with shell-operator's bindings, without a script")
    stage.excerpt("shop.hook.yaml", "kind: Hook")
    stage.install("crds/hooks")
    stage.apply("shop.hook.yaml")
    stage.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "hook/copies", "-n", "shop")
    stage.say("Two ConfigMaps get the label, and one of them is deleted afterwards:")
    for name in ("prices", "banner"):
        stage.kubectl("label", "configmap", name, "-n", "shop", "copy=yes")
    _copies(stage, {"prices-copy", "banner-copy"})
    stage.kubectl("delete", "configmap", "banner", "-n", "shop")
    _copies(stage, {"prices-copy"})
    stage.kubectl("get", "configmaps", "-n", "shop")
    stage.kubectl("get", "hooks", "-n", "shop")
    return stage.fact("a hook made two copies, and deleted one when its original was deleted")


def _copies(stage: Stage, wanted: set[str]) -> None:
    def there() -> bool:
        names = (item["metadata"]["name"] for item in stage.items("configmaps", "-n", "shop"))
        return {name for name in names if name.endswith("-copy")} == wanted

    _until(stage, "waiting for the hook", there, f"the copies are {', '.join(sorted(wanted))}")


SCENES: tuple[Callable[[Stage], str], ...] = (
    restart,
    spread,
    roll_out,
    admit,
    forbidden,
    speak,
    guard,
    copy,
)


def _heal(stage: Stage) -> float:
    """Wait until the request is finished, and return the seconds that it took."""
    clock = SystemClock()
    began = clock.monotonic()
    _until(
        stage,
        "waiting until the controller notices",
        lambda: next(filter(_final, stage.requests("maintenance")), None),
        "the request is finished",
    )
    return clock.monotonic() - began


def _until(stage: Stage, shown: str, condition: Callable[[], T | None], what: str) -> T:
    """Show a text until a condition is met, and return its result."""
    with stage.waiting(shown):
        return wait_until(condition, within=_WITHIN, what=what)


def _may_suspend(stage: Stage, shown: str, *, granted: bool) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:kyverno-background-controller"

    def settled() -> bool:
        try:
            said = stage.cluster.kubectl("auth", "can-i", "update", "cronjobs.batch", account)
        except ClusterError:
            said = "no"  # kubectl reports "no" by its exit code.
        return (said.strip() == "yes") is granted

    _until(stage, shown, settled, "the API server honours the role")


def _finished(stage: Stage, policy: str) -> None:
    """Wait until all requests of a policy are finished, and check that they succeeded."""

    def finished() -> list[dict[str, Any]] | None:
        requests = stage.requests(policy)
        return requests if requests and all(map(_final, requests)) else None

    what = f"the request of policy {policy} is finished"
    for request in _until(stage, "waiting for the request", finished, what):
        status = request["status"]
        _expect(status["state"], "Completed", f"state ({status.get('message', '')})")


def _final(request: dict[str, Any]) -> bool:
    return (request.get("status") or {}).get("state", "") not in {"", "Pending"}


def _attempted(request: dict[str, Any]) -> bool:
    return bool((request.get("status") or {}).get("attempts"))


def _state(request: dict[str, Any]) -> str:
    """Return the final state of a request, or the reason why it waits."""
    status = request.get("status") or {}
    return str(status.get("state") if _final(request) else status.get("reason", ""))


def _containers(pod: dict[str, Any]) -> list[str]:
    return [container["name"] for container in pod["containers"]]


def _generations(stage: Stage) -> dict[str, int]:
    deployments = stage.items("deployments", "-n", "shop")
    return {item["metadata"]["name"]: item["metadata"]["generation"] for item in deployments}


def _key(item: dict[str, Any]) -> str:
    return f"{item['kind']} {item['metadata']['namespace']}/{item['metadata']['name']}"


def _fleet() -> Iterator[str]:
    yield "{apiVersion: v1, kind: Namespace, metadata: {name: fleet}}\n"
    for number in range(1, _FLEET + 1):
        meta = f"{{name: settings-{number:03}, namespace: fleet, labels: {{part-of: fleet}}}}"
        yield f"{{apiVersion: v1, kind: ConfigMap, metadata: {meta}, data: {{level: info}}}}\n"


def _expect(seen: object, expected: object, what: str) -> None:
    if seen != expected:
        raise RetrofitError(f"{what}: expected {expected}, saw {seen}")
