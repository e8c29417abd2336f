"""Compilation of a GlobalContextEntry, and errors with their places."""

import pytest

from reconciler.dialects.registry import CallSource, ResourceSource, compile_entry
from reconciler.engine.loads import ApiLoad, ServiceLoad
from reconciler.errors import InvalidPolicy

POD = {"version": "v1", "resource": "pods"}
CALL = {"urlPath": "/api/v1/nodes"}


def entry(version="v2alpha1", name="teams", **spec):
    return {
        "apiVersion": f"kyverno.io/{version}",
        "kind": "GlobalContextEntry",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize("version", ["v2", "v2beta1", "v2alpha1"])
def test_an_entry_for_a_resource_is_compiled(version):
    wanted = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "a"}
    compiled = compile_entry(entry(version, kubernetesResource=wanted))
    assert compiled.source == ResourceSource(**wanted)
    assert (compiled.name, compiled.projections, compiled.warnings) == ("teams", {}, ())


def test_an_api_call_has_the_defaults_of_the_schema():
    compiled = compile_entry(entry(apiCall=CALL))
    load = ApiLoad(method="GET", path="/api/v1/nodes")
    assert compiled.source == CallSource(load=load, interval=600.0, tries=3)


def test_an_entry_for_a_service_call_is_compiled():
    service = {"url": "https://t.svc/x", "headers": [{"key": "X", "value": "1"}], "caBundle": "c"}
    data = [{"key": "b", "value": [1]}, {"key": "a", "value": "{{ kept }}"}]
    call = {"service": service, "method": "POST", "data": data, "refreshInterval": "1m30s"}
    compiled = compile_entry(entry(apiCall={**call, "retryLimit": 1}))
    load = ServiceLoad(
        method="POST",
        url="https://t.svc/x",
        body='{"a": "{{ kept }}", "b": [1]}',
        headers=(("X", "1"),),
        ca_bundle="c",
    )
    assert compiled.source == CallSource(load=load, interval=90.0, tries=1)


def test_the_refresh_interval_is_at_least_one_second():
    assert compile_entry(entry(apiCall={**CALL, "refreshInterval": "1ms"})).source.interval == 1.0


def test_projections_are_compiled():
    found = compile_entry(
        entry(kubernetesResource=POD, projections=[{"name": "names", "jmesPath": "[].a"}])
    ).projections
    assert found["names"].search([{"a": 1}, {}]) == [1]


def test_a_name_with_a_dot_is_reported_as_unreadable_for_rules():
    (warning,) = compile_entry(entry(name="a.b", kubernetesResource=POD)).warnings
    assert warning.startswith("metadata.name: no rule can read a.b")


@pytest.mark.parametrize(
    ("spec", "place", "reason"),
    [
        ({}, "spec", "exactly one"),
        ({"kubernetesResource": POD, "apiCall": CALL}, "spec", "found 2"),
        ({"other": 1}, "spec.other", "unknown field"),
        ({"kubernetesResource": {"version": "v1"}}, "spec.kubernetesResource.resource", "needed"),
        (
            {"kubernetesResource": {"resource": "pods"}},
            "spec.kubernetesResource.version",
            "needed",
        ),
        (
            {"kubernetesResource": {**POD, "version": "v1beta1"}},
            "spec.kubernetesResource.group",
            "core group",
        ),
        (
            {"kubernetesResource": {**POD, "resource": "*"}},
            "spec.kubernetesResource.resource",
            "*",
        ),
        (
            {"kubernetesResource": {**POD, "resource": "pods/log"}},
            "spec.kubernetesResource.resource",
            "not an exact name",
        ),
        (
            {"kubernetesResource": {**POD, "resource": "Pods"}},
            "spec.kubernetesResource.resource",
            "plural",
        ),
        (
            {"kubernetesResource": {**POD, "namespace": "{{ request.namespace }}"}},
            "spec.kubernetesResource.namespace",
            "variables are not allowed",
        ),
        ({"apiCall": {}}, "spec.apiCall", "either a urlPath or a service"),
        ({"apiCall": {**CALL, "service": {"url": "u"}}}, "spec.apiCall", "either"),
        ({"apiCall": {"urlPath": "api/v1"}}, "spec.apiCall.urlPath", "must begin with /"),
        ({"apiCall": {"service": {}}}, "spec.apiCall.service.url", "needed"),
        (
            {"apiCall": {"service": {"url": "u", "caBundleFrom": {}}}},
            "spec.apiCall.service.caBundleFrom",
            "unknown field",
        ),
        (
            {"apiCall": {"service": {"url": "u", "headers": [{"key": "k", "valueFrom": {}}]}}},
            "spec.apiCall.service.headers[0].valueFrom",
            "unknown field",
        ),
        ({"apiCall": {**CALL, "method": "PUT"}}, "spec.apiCall.method", "GET or POST"),
        ({"apiCall": {**CALL, "data": [{"key": "a"}]}}, "spec.apiCall.method", "POST"),
        ({"apiCall": {**CALL, "data": [{}]}}, "spec.apiCall.data[0].key", "key"),
        ({"apiCall": {**CALL, "refreshInterval": "0s"}}, "spec.apiCall.refreshInterval", "zero"),
        ({"apiCall": {**CALL, "refreshInterval": "soon"}}, "spec.apiCall.refreshInterval", "as"),
        ({"apiCall": {**CALL, "refreshInterval": 5}}, "spec.apiCall.refreshInterval", "as"),
        ({"apiCall": {**CALL, "retryLimit": 0}}, "spec.apiCall.retryLimit", "at least 1"),
        ({"apiCall": CALL, "projections": [{}]}, "spec.projections[0].name", "needed"),
        (
            {"apiCall": CALL, "projections": [{"name": "teams", "jmesPath": "a"}]},
            "spec.projections[0].name",
            "differ from that of the entry",
        ),
        (
            {"apiCall": CALL, "projections": [{"name": "p", "jmesPath": "a"}] * 2},
            "spec.projections[1].name",
            "twice",
        ),
        (
            {"apiCall": CALL, "projections": [{"name": "p"}]},
            "spec.projections[0].jmesPath",
            "need",
        ),
        (
            {"apiCall": CALL, "projections": [{"name": "p", "jmesPath": "a["}]},
            "spec.projections[0].jmesPath",
            "column",
        ),
    ],
)
def test_an_invalid_entry_is_refused_with_its_location(spec, place, reason):
    with pytest.raises(InvalidPolicy) as refused:
        compile_entry(entry(**spec))
    assert refused.value.location == place
    assert reason in refused.value.reason


@pytest.mark.parametrize("part", [{"metadata": ["x"]}, {"spec": ["x"]}, {"kind": "ClusterPolicy"}])
def test_an_object_that_is_not_an_entry_is_refused(part):
    with pytest.raises(InvalidPolicy):
        compile_entry({**entry(kubernetesResource=POD), **part})
