"""Builders of ModRules, and their chained run on an object as in an admission request."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from reconciler.api.meta import Object, split_api_version
from reconciler.dialects.kubemod import KUBEMOD
from reconciler.engine.chain import Chain, grouped
from reconciler.engine.context import Context, request_context
from reconciler.engine.loads import ApiLoad
from reconciler.engine.match import Subject
from reconciler.engine.outcome import RuleStatus
from reconciler.engine.program import Program
from reconciler.engine.run import RuleRun
from reconciler.errors import RetrofitError

POD = {"select": "$.kind", "matchValue": "Pod"}


def modrule(
    spec: str | Mapping[str, Any] = "",
    *,
    name: str = "rule",
    namespace: str = "shop",
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Object:
    """Return a ModRule; its specification may be written in YAML."""
    given: Mapping[str, Any] = (yaml.safe_load(spec) or {}) if isinstance(spec, str) else spec
    meta: dict[str, Any] = {"name": name, "namespace": namespace}
    if annotations:
        meta["annotations"] = annotations
    return {
        "apiVersion": "api.kubemod.io/v1beta1",
        "kind": "ModRule",
        "metadata": meta,
        "spec": {**given, **fields},
    }


def patching(*patch: Mapping[str, Any], **fields: Any) -> Object:
    """Return a ModRule that patches Pods."""
    return modrule(type="Patch", match=[POD], patch=list(patch), **fields)


def program_of(rule: Object) -> Program:
    """Return the first program of a rule; a second one may act on the bindings of its Pods."""
    return KUBEMOD.compile(rule).programs[0]


def make_pod(**fields: Any) -> Object:
    """Return a Pod of namespace shop with two containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "containers": [
                {"name": "web", "image": "shop/web:1", "ports": [{"containerPort": 80}]},
                {"name": "log", "image": "tools/log:2"},
            ]
        },
        **fields,
    }


def run_of(
    program: Program,
    obj: Mapping[str, Any],
    operation: str = "CREATE",
    *,
    cluster: Sequence[Object] = (),
    labels: Mapping[str, str] | None = None,
) -> RuleRun:
    """Return the run of a rule on an object that a user writes."""
    group, version = split_api_version(str(obj["apiVersion"]))
    namespace = str(obj["metadata"].get("namespace") or "")
    subject = Subject(
        obj=obj,
        group=group,
        version=version,
        kind=str(obj["kind"]),
        name=str(obj["metadata"].get("name") or ""),
        namespace=namespace,
        operation=operation,
        namespace_labels=labels or {},
    )
    return RuleRun.of(program, subject, context_of(obj, operation, cluster))


def context_of(
    obj: Mapping[str, Any], operation: str = "CREATE", cluster: Sequence[Object] = ()
) -> Context:
    """Return the context of a request, with the objects of a cluster as loads."""
    group, version = split_api_version(str(obj["apiVersion"]))
    context = request_context(
        operation=operation,
        obj=obj,
        old_object=obj,
        name=str(obj["metadata"].get("name") or ""),
        namespace=str(obj["metadata"].get("namespace") or ""),
        kind=(group, version, str(obj["kind"])),
        user_info=None,
    )
    return context.with_loads(
        {
            ApiLoad(
                method="GET",
                path=f"/api/v1/{str(item['kind']).lower()}s/{item['metadata']['name']}",
            ): item
            for item in cluster
        }
    )


def request(
    rules: Sequence[Object],
    obj: Object,
    operation: str = "CREATE",
    *,
    cluster: Sequence[Object] = (),
    labels: Mapping[str, str] | None = None,
) -> Chain:
    """Return the chain after all rules ran on an object."""
    chain = Chain(groups=grouped(map(program_of, rules)), obj=obj)
    for step in chain.steps():

        def run_on(seen: Mapping[str, Any], program: Program = step.program) -> RuleRun:
            return run_of(program, seen, operation, cluster=cluster, labels=labels)

        try:
            result = step.evaluate(run_on)
        except RetrofitError as error:
            result = step.failed(error)
        chain.settle(result)
    return chain


def errors(chain: Chain) -> list[str]:
    """Return the messages of the rules that failed."""
    return [item.message for item in chain.results if item.status is RuleStatus.ERROR]


def refusals(chain: Chain) -> list[str]:
    """Return the messages of the rules that refused the request."""
    return [item.message for item in chain.results if item.status is RuleStatus.FAIL]
