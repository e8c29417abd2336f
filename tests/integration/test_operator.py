"""kopf inside the process, on a real API server: failed watches are reported and retried."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import kopf
import pytest

from devcluster.cluster import Cluster
from devcluster.waiting import wait_until
from reconciler.controller.operator import Operator
from reconciler.dialects.registry import required_kinds
from reconciler.errors import Unauthorized
from reconciler.installation import REPLACING
from reconciler.kube.client import connect

KINDS = required_kinds(REPLACING)
WITHIN = 30.0


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, within=WITHIN, what="kopf is as it should be")


@contextlib.asynccontextmanager
async def opened(kubeconfig: Path, **more: float) -> AsyncIterator[Operator]:
    """Yield an operator that watches the required kinds with the credentials of a kubeconfig."""
    registry = kopf.OperatorRegistry()
    for kind in KINDS:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(nothing)
    client = await connect(str(kubeconfig))
    try:
        yield Operator(
            client,
            KINDS,
            page=100,
            identity="this-one",
            stop=asyncio.Event(),
            registry=registry,
            **more,
        )
    finally:
        await client.close()


async def nothing(**_: object) -> None:
    pass


@contextlib.asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(operator.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_operator_is_ready_once_it_watches_its_kinds(installed_cluster: Cluster) -> None:
    async with opened(installed_cluster.kubeconfig) as operator:
        assert "not watched yet" in str(operator.watches.problem())
        async with running(operator):
            await until(lambda: operator.watches.problem() is None)


async def test_a_missing_watch_right_is_reported_until_it_is_granted(
    installed_cluster: Cluster, namespace: str
) -> None:
    kubectl = installed_cluster.kubectl
    names = ",".join(kind.resource for kind in KINDS)
    kubectl("create", "clusterrole", namespace, "--verb=get,list", f"--resource={names}")
    kubectl(
        *("create", "clusterrolebinding", namespace),
        *(f"--clusterrole={namespace}", f"--serviceaccount={namespace}:default"),
    )
    try:
        file = installed_cluster.service_account_kubeconfig(namespace, "default")
        async with opened(file) as operator, running(operator):
            await until(lambda: "grant: watch" in str(operator.watches.problem()))
            kubectl("delete", "clusterrole", namespace)
            verbs = "--verb=get,list,watch"
            kubectl("create", "clusterrole", namespace, verbs, f"--resource={names}")
            await until(lambda: operator.watches.problem() is None)
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding", namespace)


async def test_refused_credentials_end_the_operator(
    installed_cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    view = installed_cluster.kubectl("config", "view", "--raw", "--flatten", "-o", "json")
    config = json.loads(view)
    for user in config["users"]:
        user["user"] = {"token": "wrong"}
    file.write_text(json.dumps(config))
    async with opened(file, patience=0.0) as operator:
        with pytest.raises(Unauthorized, match="the token is expired or wrong: renew it"):
            await asyncio.wait_for(operator.run(), WITHIN)


async def test_the_operator_continues_with_replaced_credentials(
    installed_cluster: Cluster, tmp_path: Path
) -> None:
    config = json.loads(
        installed_cluster.kubectl("config", "view", "--raw", "--flatten", "-o", "json")
    )
    (token,) = (user["user"]["token"] for user in config["users"])
    tokens = tmp_path / "token"
    tokens.write_text("wrong")
    for user in config["users"]:
        user["user"] = {"tokenFile": str(tokens)}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    async with opened(file) as operator, running(operator) as task:
        await until(lambda: "renew it" in str(operator.watches.problem()))
        tokens.write_text(token)
        await until(lambda: operator.watches.problem() is None)
        assert not task.done()


async def test_a_kind_that_is_served_later_is_watched(
    installed_cluster: Cluster, namespace: str
) -> None:
    kubectl, heard = installed_cluster.kubectl, list[str]()

    async def hear(event: kopf.RawEvent, **_: object) -> None:
        heard.append(event["object"]["metadata"]["name"])

    group = f"{namespace}.example.com"
    registry = kopf.OperatorRegistry()
    kopf.on.event(group, "v1", "rules", registry=registry)(hear)
    for kind in KINDS:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(nothing)
    client = await connect(str(installed_cluster.kubeconfig))
    stop = asyncio.Event()
    operator = Operator(client, KINDS, page=100, identity="it", stop=stop, registry=registry)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rules.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "rules", "kind": "Rule"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    try:
        async with running(operator):
            await until(lambda: operator.watches.problem() is None)
            kubectl("apply", "-f", "-", stdin=json.dumps(definition))
            kubectl("wait", "--for=condition=Established", f"crd/rules.{group}")
            rule: dict[str, object] = {"apiVersion": f"{group}/v1", "kind": "Rule"}
            rule["metadata"] = {"name": "a", "namespace": namespace}
            kubectl("apply", "-f", "-", stdin=json.dumps(rule))
            await until(lambda: heard == ["a"])
    finally:
        await client.close()
        kubectl("delete", "crd", f"rules.{group}", "--ignore-not-found")
