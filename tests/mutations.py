"""Rules without targets and their objects, on which all ways to apply rules must agree.

No case depends on a value that an API server sets by default.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from reconciler.api.meta import Object
from reconciler.cli.main import retrofit

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"mode": "slow", "list": "a,b"}}
CONTAINERS = {
    "automountServiceAccountToken": False,  # Its volume would have a random name.
    "containers": [
        {"name": "web", "image": "shop/web:latest", "imagePullPolicy": "Always"},
        {"name": "log", "image": "quay.io/shop/log:2", "imagePullPolicy": "Always"},
    ],
}
POD = {"apiVersion": "v1", "kind": "Pod", "spec": CONTAINERS}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": CONTAINERS},
    },
}
SLOW = {"all": [{"key": "{{ request.object.data.mode }}", "operator": "Equals", "value": "slow"}]}

FAST = {"all": [{"key": "{{ request.object.data.mode }}", "operator": "Equals", "value": "fast"}]}


def merge(**patch: Any) -> dict[str, Any]:
    """Return a rule with a strategic merge patch."""
    return {"mutate": {"patchStrategicMerge": patch}}


def labels(**values: str) -> dict[str, Any]:
    """Return a rule that sets labels."""
    return merge(metadata={"labels": values})


def operations(text: str) -> dict[str, Any]:
    """Return a rule with the operations of an RFC 6902 patch."""
    return {"mutate": {"patchesJson6902": text}}


def foreach(items: str, **block: Any) -> dict[str, Any]:
    """Return a rule with one ``foreach`` block over a list."""
    return {"mutate": {"foreach": [{"list": items, **block}]}}


Case = tuple[Mapping[str, Any], list[dict[str, Any]], Mapping[str, Any]]

CASES: Mapping[str, Case] = {
    "set and add": (CONFIG_MAP, [labels(**{"a": "1", "+(b)": "2"})], {}),
    "the request": (
        CONFIG_MAP,
        [labels(name="{{ request.object.metadata.name }}", done="{{ request.operation }}")],
        {},
    ),
    "on the result of another rule": (
        CONFIG_MAP,
        [
            merge(data={"mode": "fast"}),
            {**labels(still="slow"), "preconditions": SLOW},
            merge(data={"seen": "{{ request.object.data.mode }}"}),
        ],
        {},
    ),
    "only one": (
        CONFIG_MAP,
        [labels(a="1"), labels(b="2")],
        {"applyRules": "One"},
    ),
    "only one, the second": (
        CONFIG_MAP,
        [{**labels(a="1"), "preconditions": FAST}, labels(b="2")],
        {"applyRules": "One"},
    ),
    "a context entry": (
        CONFIG_MAP,
        [
            {
                **merge(data={"count": "{{ to_string(length(items)) }}"}),
                "context": [
                    {"name": "items", "variable": {"value": "{{ split(given, ',') }}"}},
                    {
                        "name": "given",
                        "variable": {"jmesPath": "request.object.data.list", "default": "x"},
                    },
                ][::-1],
            }
        ],
        {},
    ),
    "operations": (
        CONFIG_MAP,
        [
            operations(
                "- {op: copy, from: /data/mode, path: /data/was}\n"
                "- {op: replace, path: /data/mode, value: '{{ request.object.data.list }}'}\n"
                "- {op: add, path: /metadata/annotations/example.com~1a, value: b}\n"
                "- {op: remove, path: /data/list}\n"
            )
        ],
        {},
    ),
    "absence": (CONFIG_MAP, [merge(data={"list": None, "mode": "fast"})], {}),
    "a condition that fails": (CONFIG_MAP, [merge(data={"(mode)": "fast", "x": "y"})], {}),
    "for everything": (
        POD,
        [
            merge(
                spec={
                    "containers": [{"<(image)": "quay.io/*"}],
                    "hostname": "from-quay",
                }
            )
        ],
        {},
    ),
    "a condition in a list": (
        POD,
        [merge(spec={"containers": [{"(image)": "*:latest", "imagePullPolicy": "Never"}]})],
        {},
    ),
    "a sidecar": (
        DEPLOYMENT,
        [merge(spec={"template": {"spec": {"containers": [{"name": "agent", "image": "a:1"}]}}})],
        {},
    ),
    "a container less": (
        POD,
        [merge(spec={"containers": [{"name": "log", "$patch": "delete"}]})],
        {},
    ),
    "images": (
        POD,
        [
            foreach(
                "request.object.spec.containers",
                patchStrategicMerge={
                    "spec": {
                        "containers": [
                            {
                                "(name)": "{{ element.name }}",
                                "image": 'cache/{{ images.containers."{{element.name}}".path }}',
                            }
                        ]
                    }
                },
            )
        ],
        {},
    ),
    "each by its position": (
        POD,
        [
            foreach(
                "request.object.spec.containers",
                preconditions={
                    "all": [{"key": "{{ element.name }}", "operator": "Equals", "value": "log"}]
                },
                patchesJson6902="- {op: add, path: '/spec/containers/{{elementIndex}}/tty',"
                " value: true}",
            )
        ],
        {},
    ),
    "each of each": (
        CONFIG_MAP,
        [
            foreach(
                "split(request.object.data.list, ',')",
                foreach=[
                    {
                        "list": "split(request.object.data.list, ',')",
                        "patchStrategicMerge": {"data": {"{{ element0 }}-{{ element1 }}": "x"}},
                    }
                ],
            )
        ],
        {},
    ),
    "an element more": (
        POD,
        [operations("- {op: add, path: /spec/containers/-, value: {name: last, image: l}}")],
        {},
    ),
    "a rule for Pods": (
        DEPLOYMENT,
        [
            {
                **merge(spec={"securityContext": {"+(runAsNonRoot)": True}}),
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            }
        ],
        {},
    ),
}


def policy_of(case: Case, name: str, **resources: Any) -> dict[str, Any]:
    """Return the policy of a case.

    Args:
        case: One of `CASES`.
        name: The name of the policy.
        resources: Additional fields of the rules' match, beside the kind.
    """
    obj, rules, spec = case
    given = [
        {"name": f"r{index}", "match": {"any": [{"resources": {"kinds": [obj["kind"]]}}]}, **rule}
        for index, rule in enumerate(rules)
    ]
    for rule in given:
        found = {**rule["match"]["any"][0]["resources"], **resources}
        if found["kinds"] == ["Pod"] != [obj["kind"]]:
            # With names, the rule would not also be generated for Pod controllers.
            found.pop("names", None)
        rule["match"] = {"any": [{"resources": found}]}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {**spec, "rules": given},
    }


def object_of(case: Case, name: str, namespace: str) -> dict[str, Any]:
    """Return the object of a case."""
    return {**case[0], "metadata": {"name": name, "namespace": namespace}}


def at_the_desk(folder: Path, policy: Object, obj: Object) -> Object:
    """Return an object as ``retrofit apply`` changes it."""
    files = []
    for name, document in (("policy.json", policy), ("object.json", obj)):
        files.append(str(folder / name))
        (folder / name).write_text(json.dumps(document))
    done = CliRunner().invoke(retrofit, ["apply", files[0], "-r", files[1], "-o", "json"])
    assert done.exit_code == 0, done.output
    (after,) = json.loads(done.stdout)["items"]
    return dict(after)
