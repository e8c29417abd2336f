"""Strategic merge compared with the API server's own: the same patch on the same objects.

Intended differences are in `test_intended_differences_from_the_api_server_in_lists` and in
docs/reference/parity.md.
"""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.api.meta import Kind
from reconciler.engine.patch import SHIPPED, Schema, merge
from reconciler.errors import ClusterError, EvaluationError
from reconciler.kube.client import Client, connect

STRATEGIC = "application/strategic-merge-patch+json"
REFUSED = "refused"
REVISION = "deployment.kubernetes.io/revision"


def kind_of(group: str, kind: str, plural: str) -> Kind:
    return Kind(group=group, version="v1", kind=kind, plural=plural, namespaced=True)


# Its kind is not served, so the garbage collector cannot find out that the owner is absent.
OWNER = {"apiVersion": "example.org/v1", "kind": "Nothing", "name": "owner"}
META = {
    "name": "base",
    "labels": {"app": "web", "tier": "front"},
    "annotations": {"a": "1", "b": "2"},
    "finalizers": ["example.org/a", "example.org/b"],
    "ownerReferences": [{**OWNER, "uid": "u1"}, {**OWNER, "uid": "u2"}],
}
POD_SPEC = {
    "containers": [
        {
            "name": "a",
            "image": "a:1",
            "args": ["x", "y"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"}],
        },
        {"name": "b", "image": "b:1"},
        {"name": "c", "image": "c:1"},
    ],
    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "w"}}],
    "tolerations": [{"key": "t", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "s"}, {"name": "t"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["one", "two"]}],
    "nodeSelector": {"disk": "ssd"},
}
BASES: dict[Kind, dict[str, Any]] = {
    kind_of("apps", "Deployment", "deployments"): {
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC},
        }
    },
    kind_of("", "Service", "services"): {
        "spec": {
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80}, {"name": "metrics", "port": 81}],
        }
    },
    kind_of("", "ServiceAccount", "serviceaccounts"): {
        "secrets": [{"name": "s"}, {"name": "t"}],
        "imagePullSecrets": [{"name": "s"}, {"name": "t"}],
    },
    kind_of("", "ConfigMap", "configmaps"): {"data": {"k": "v", "l": "w"}},
    kind_of("networking.k8s.io", "Ingress", "ingresses"): {
        "spec": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
            "tls": [{"hosts": ["one.example", "two.example"], "secretName": "one"}],
        }
    },
}


def maybe(**fields: Any) -> Any:
    return st.fixed_dictionaries({}, optional=fields)


def texts(*names: str) -> Any:
    return st.dictionaries(st.sampled_from(names), st.none() | st.sampled_from("xy"), max_size=2)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if inner is not None}


def directed(inner: Any) -> Any:
    """Return a strategy for a map that may also be deleted, replaced, or have $retainKeys."""
    return st.one_of(
        inner,
        inner,
        st.none(),
        inner.map(lambda value: {**_without_nulls(value), "$patch": "replace"}),
        st.just({"$patch": "delete"}),
        inner.map(lambda value: {**value, "$retainKeys": sorted(value)}),
    )


@st.composite
def keyed(draw: Any, field: str, key: str, names: Any, element: Any) -> dict[str, Any]:
    """Draw a keyed list in any form of a patch, with or without an order."""
    listed = draw(
        st.lists(
            st.builds(
                lambda name, value: {**value, key: name},
                st.sampled_from(names),
                element | st.just({"$patch": "delete"}),
            ),
            max_size=3,
            unique_by=lambda item: item[key],
        )
    )
    form = draw(st.sampled_from(["merge", "merge", "replace", "order", "order only", "partial"]))
    if form == "order only" or (not listed and form in ("order", "partial")):
        # An empty list beside its order is among the intended differences.
        return {f"$setElementOrder/{field}": [{key: n} for n in draw(st.permutations(names))]}
    if form == "replace":
        return {field: [*(i for i in listed if "$patch" not in i), {"$patch": "replace"}]}
    if form == "merge":
        return {field: listed}
    kept = [item[key] for item in listed if "$patch" not in item]
    rest = [name for name in names if name not in kept]
    if len(kept) < len(listed):
        # If the patch deletes an element, the API server loses the positions of the others.
        kept += rest
    elif form == "order":
        kept += draw(st.lists(st.sampled_from(rest), unique=True)) if rest else []
    # The API server requires the order to agree with that of the patch.
    return {field: listed, f"$setElementOrder/{field}": [{key: name} for name in kept]}


@st.composite
def primitives(draw: Any, field: str, values: Any) -> dict[str, Any]:
    gone = draw(st.lists(st.sampled_from(values), max_size=2, unique=True))
    left = [value for value in values if value not in gone]
    added = draw(st.lists(st.sampled_from(left), max_size=2, unique=True)) if left else []
    patch: dict[str, Any] = {}
    if added:
        patch[field] = added
    if gone:
        patch[f"$deleteFromPrimitiveList/{field}"] = gone
    if draw(st.booleans()):
        patch[f"$setElementOrder/{field}"] = [*added, *(v for v in left if v not in added)]
    return patch


def joined(*parts: Any) -> Any:
    return st.tuples(*parts).map(lambda found: {k: v for part in found for k, v in part.items()})


METADATA = joined(
    maybe(labels=directed(texts("app", "tier", "new")), annotations=directed(texts("a", "z"))),
    st.just({}) | primitives("finalizers", ["example.org/a", "example.org/b", "example.org/n"]),
    st.just({})
    | keyed(
        "ownerReferences", "uid", ["u1", "u2", "u3"], st.just({**OWNER}) | st.just({"name": "x"})
    ),
)
CONTAINER = joined(
    maybe(image=st.sampled_from(["n:1", "n:2"]), command=st.lists(st.sampled_from("xz"))),
    st.just({}) | keyed("env", "name", ["A", "B", "N"], maybe(value=st.sampled_from("12"))),
    st.just({}) | keyed("ports", "containerPort", [80, 81, 82], maybe(hostIP=st.just("10.0.0.9"))),
    st.just({}) | keyed("volumeMounts", "mountPath", ["/v", "/w"], maybe(readOnly=st.booleans())),
    st.just({}) | primitives("args", ["x", "y"]),
)


def _without_deletions(container: dict[str, Any]) -> dict[str, Any]:
    return {
        field: [item for item in value if not isinstance(item, dict) or "$patch" not in item]
        if isinstance(value, list)
        else value
        for field, value in container.items()
    }


def _nothing_deleted_in_new(patch: dict[str, Any]) -> dict[str, Any]:
    """Return the patch without deletions in the container `n`, which the object does not have.

    They are among the intended differences.
    """
    if "containers" not in patch:
        return patch
    listed = patch["containers"]
    return {
        **patch,
        "containers": [_without_deletions(c) if c.get("name") == "n" else c for c in listed],
    }


VOLUME = directed(
    st.sampled_from(
        [{"emptyDir": {}}, {"configMap": {"name": "n"}}, {"configMap": {"optional": True}}]
    )
).filter(lambda value: value is not None and value.get("$patch") != "replace")
# An element that replaces is among the intended differences.
POD = joined(
    st.just({})
    | keyed("containers", "name", ["a", "b", "c", "n"], CONTAINER).map(_nothing_deleted_in_new),
    st.just({}) | keyed("volumes", "name", ["v", "w", "n"], VOLUME),
    st.just({}) | keyed("imagePullSecrets", "name", ["s", "t", "n"], st.just({})),
    maybe(
        tolerations=st.lists(st.just({"key": "n", "operator": "Exists"}), max_size=1),
        hostAliases=st.just([{"ip": "10.0.0.1", "hostnames": ["three"]}]),
        nodeSelector=directed(texts("disk", "zone")),
        hostNetwork=st.booleans(),
    ),
)
DEPLOYMENT = maybe(
    replicas=st.none() | st.integers(0, 3),
    strategy=st.sampled_from(
        [
            {"type": "Recreate"},
            {"type": "Recreate", "rollingUpdate": None},
            {"$retainKeys": ["type"], "type": "Recreate"},
            {"$retainKeys": ["type", "rollingUpdate"], "rollingUpdate": {"maxSurge": 2}},
            {"$retainKeys": ["rollingUpdate"], "type": "Recreate"},
            {"$patch": "replace", "type": "Recreate"},
        ]
    ),
    template=maybe(spec=POD, metadata=maybe(annotations=texts("a"))),
)
SERVICE = joined(
    maybe(selector=directed(texts("app", "n")), sessionAffinity=st.just("ClientIP")),
    st.just({}) | keyed("ports", "port", [80, 81, 82], maybe(name=st.sampled_from(["n", "m"]))),
)
PATCHES: dict[str, Any] = {
    "Deployment": maybe(metadata=METADATA, spec=DEPLOYMENT),
    "Service": maybe(metadata=METADATA, spec=SERVICE),
    "ServiceAccount": joined(
        maybe(metadata=METADATA, imagePullSecrets=st.just([{"name": "n"}])),
        st.just({}) | keyed("secrets", "name", ["s", "t", "n"], st.just({})),
    ),
    "ConfigMap": maybe(metadata=METADATA, data=directed(texts("k", "l", "n"))),
    "Ingress": maybe(
        metadata=METADATA,
        spec=maybe(
            tls=st.just([{"hosts": ["three.example"]}]),
            defaultBackend=directed(
                st.just({"service": {"name": "other", "port": {"number": 81}}})
            ),
        ),
    ),
}


class Server:
    """A synchronous client of the API server, which runs its own event loop."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._runner = asyncio.Runner()
        self._client: Client = self._runner.run(connect(kubeconfig))
        self._namespace = namespace

    def create(self, kind: Kind, content: dict[str, Any]) -> None:
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": META}
        self._do(kind, "create", head | content)

    def live(self, kind: Kind) -> Any:
        return self._do(kind, "get", name="base")

    def patched(self, kind: Kind, patch: dict[str, Any]) -> Any:
        return self._changed("patch", kind, patch, content_type=STRATEGIC)

    def put(self, kind: Kind, obj: dict[str, Any]) -> Any:
        return self._changed("replace", kind, obj)

    def close(self) -> None:
        for kind in BASES:
            self._do(
                kind,
                "patch",
                {"metadata": {"finalizers": None}},
                name="base",
                content_type="application/merge-patch+json",
            )
        self._runner.run(self._client.close())
        self._runner.close()

    def _changed(self, verb: str, kind: Kind, body: Any, **options: Any) -> Any:
        try:
            return self._do(kind, verb, body, name="base", dry_run="All", **options)
        except ClusterError:
            return REFUSED

    def _do(self, kind: Kind, verb: str, *body: Any, **options: Any) -> Any:
        work = getattr(self._client.resource(kind), verb)
        return self._runner.run(work(*body, namespace=self._namespace, **options))


@pytest.fixture(scope="module")
def server(control_plane: Any) -> Iterator[Server]:
    namespace = f"strategic-{uuid.uuid4().hex[:6]}"
    control_plane.kubectl("create", "namespace", namespace)
    server = Server(str(control_plane.kubeconfig), namespace)
    for kind, content in BASES.items():
        server.create(kind, content)
    yield server
    server.close()
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def ours(server: Server, kind: Kind, patch: dict[str, Any]) -> Any:
    try:
        merged = merge(server.live(kind), patch, SHIPPED)
    except EvaluationError:
        return REFUSED
    # A controller may have changed the object meanwhile.
    meta = {key: value for key, value in merged["metadata"].items() if key != "resourceVersion"}
    return server.put(kind, {**merged, "metadata": meta})


def comparable(value: Any, schema: Schema | None, patch: Any) -> Any:
    """Return the value with keyed lists sorted, unless the patch orders them."""
    if isinstance(value, dict):
        patch = patch if isinstance(patch, dict) else {}
        return {
            name: _comparable_list(inner, schema.field(name) if schema else None, name, patch)
            if isinstance(inner, list)
            else comparable(inner, schema.field(name) if schema else None, patch.get(name))
            for name, inner in value.items()
        }
    return value


def _comparable_list(value: list[Any], schema: Schema | None, name: str, patch: Any) -> Any:
    keys = schema.merge_keys if schema else None
    if keys is None:
        return value
    elements = [item for item in patch.get(name) or [] if isinstance(item, dict)]
    found = []
    for item in value:
        match = next((e for e in elements if keys and e.get(keys[0]) == item.get(keys[0])), None)
        found.append(comparable(item, schema.items if schema else None, match))
    if f"$setElementOrder/{name}" in patch:
        return found
    return sorted(found, key=orjson.dumps)


def seen(obj: Any, patch: Any) -> Any:
    if obj == REFUSED:
        return obj
    left_out = ("managedFields", "resourceVersion", "generation", "creationTimestamp")
    meta = {key: value for key, value in obj["metadata"].items() if key not in left_out}
    # The deployment controller may have written meanwhile.
    content = {key: value for key, value in obj.items() if key != "status"}
    marks = {k: v for k, v in (meta.get("annotations") or {}).items() if k != REVISION}
    return comparable(
        {**content, "metadata": {**meta, "annotations": marks}}, SHIPPED.of(obj), patch
    )


@pytest.mark.parametrize("kind", BASES, ids=lambda kind: kind.kind)
@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_strategic_merge_has_the_result_of_the_api_server(
    server: Server, kind: Kind, data: st.DataObject
) -> None:
    patch = data.draw(PATCHES[kind.kind], label="patch")
    theirs = seen(server.patched(kind, patch), patch)
    assert seen(ours(server, kind, patch), patch) == theirs


def names(obj: Any, *path: str, by: str) -> Any:
    if obj == REFUSED:
        return obj
    for step in path:
        obj = obj.get(step) or []
    return [item[by] for item in obj] if by else obj


OWNERS = ("metadata", "ownerReferences")
PORTS = ("spec", "ports")
NEW_OWNERS = ({"uid": "u2", "name": "n"}, {**OWNER, "uid": "u3"})
TWO_PORTS = [{"port": 80, "name": "x"}, {"port": 80, "name": "y", "protocol": "UDP"}]


@pytest.mark.parametrize(
    ("kind", "path", "by", "patch", "theirs", "mine"),
    [
        # New and patched elements come first, as in the reference.
        ("Service", OWNERS, "uid", [*NEW_OWNERS], ["u1", "u2", "u3"], ["u2", "u3", "u1"]),
        # One element is replaced, not the whole list.
        (
            "Service",
            OWNERS,
            "uid",
            [{**OWNER, "uid": "u1", "$patch": "replace"}],
            [],
            ["u1", "u2"],
        ),
        # Only the reference supports these two directives for whole lists.
        ("Service", OWNERS, "uid", [{"$patch": "merge"}], REFUSED, ["u1", "u2"]),
        ("Service", OWNERS, "uid", [{"$patch": "delete"}], REFUSED, []),
        # The merge compares all merge keys, and the API server only the first.
        ("Service", PORTS, "name", TWO_PORTS, ["y", "metrics"], ["x", "y", "metrics"]),
    ],
)
def test_intended_differences_from_the_api_server_in_lists(
    server: Server, kind: str, path: Any, by: str, patch: Any, theirs: Any, mine: Any
) -> None:
    found = next(item for item in BASES if item.kind == kind)
    whole: Any = patch
    for step in reversed(path):
        whole = {step: whole}
    assert names(server.patched(found, whole), *path, by=by) == theirs
    assert names(ours(server, found, whole), *path, by=by) == mine


MOUNT = {"mountPath": "/v"}
NOT_CHANGED = {"name": "b"}
NOTHING_TO_DELETE = {"name": "n", "image": "n:1", "volumeMounts": [{**MOUNT, "$patch": "delete"}]}


@pytest.mark.parametrize(
    ("container", "as_if"),
    [
        ({"name": "b", "volumeMounts": [], "$setElementOrder/volumeMounts": [MOUNT]}, NOT_CHANGED),
        ({"name": "b", "args": [], "$setElementOrder/args": []}, NOT_CHANGED),
        (NOTHING_TO_DELETE, {"name": "n", "image": "n:1"}),
    ],
)
def test_directives_for_absent_lists_change_nothing_but_the_api_server_refuses_them(
    server: Server, container: dict[str, Any], as_if: dict[str, Any]
) -> None:
    found = next(item for item in BASES if item.kind == "Deployment")
    whole, plain = (
        {"spec": {"template": {"spec": {"containers": [item]}}}} for item in (container, as_if)
    )
    assert server.patched(found, whole) == REFUSED
    assert seen(ours(server, found, whole), whole) == seen(server.patched(found, plain), whole)


def test_intended_differences_from_the_api_server_in_maps(server: Server) -> None:
    maps = next(item for item in BASES if item.kind == "ConfigMap")
    for patch, theirs, mine in (
        # A null in a replacing map deletes; the API server stores an empty string.
        ({"$patch": "replace", "app": None}, {"app": ""}, None),
        ({"$patch": "merge", "app": "n"}, REFUSED, {"app": "n", "tier": "front"}),
    ):
        whole = {"metadata": {"labels": patch}}
        found = [server.patched(maps, whole), ours(server, maps, whole)]
        for obj, expected in zip(found, (theirs, mine), strict=True):
            labels = obj if obj == REFUSED else obj["metadata"].get("labels")
            assert labels == expected
