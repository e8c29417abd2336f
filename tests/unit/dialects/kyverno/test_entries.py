"""Context entries: their values, and the data that they load, and when."""

from urllib.parse import unquote

import pytest

from reconciler.dialects.kyverno.entries import (
    ApiCallEntry,
    ConfigMapEntry,
    GlobalEntry,
    VariableEntry,
    with_entries,
)
from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.context import Context
from reconciler.engine.loads import (
    ApiLoad,
    ConfigMapLoad,
    GlobalLoad,
    LoadFailure,
    NeedsLoad,
    ServiceLoad,
)
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import MissingKey, compile_expression

OBJECT = {"metadata": {"name": "o", "labels": {"team": "red"}}, "spec": {"x": [1, 2], "no": None}}
MAP = {"data": {"k": "v", "a.b": "dotted"}, "metadata": {"name": "c"}}


def template(value):
    return None if value is None else compile_template(value, location="entry")


def variable(name="v", *, value=None, path=None, default=None):
    return VariableEntry(
        name=name, value=template(value), path=template(path), default=template(default)
    )


def config_map(name="cm", *, of="c", namespace="n", home="default", bound=""):
    return ConfigMapEntry(
        name=name,
        config_map=template(of),
        namespace=template(namespace),
        home=home,
        bound=bound,
    )


def api_call(name="api", *, path=None, default=None, bound="", **call):
    call = call or {"urlPath": "/api/v1/pods"}
    address = call.pop("urlPath", None)
    if "service" in call:
        address = call["service"].pop("url")
    return ApiCallEntry(
        name=name,
        address=template(address),
        call=template(call),
        path=template(path),
        default=default,
        bound=bound,
    )


def context(*entries, loads=None, **data):
    base = Context({"request": {"object": OBJECT, "operation": "CREATE"}, **data})
    return with_entries(base if loads is None else base.with_loads(loads), entries)


def search(source, seen):
    return seen.search(compile_expression(source))


def needed(source, seen):
    (load,) = all_needed(source, seen)
    return load


def all_needed(source, seen):
    with pytest.raises(NeedsLoad) as caught:
        search(source, seen)
    return caught.value.loads


def failure(source, seen):
    with pytest.raises(EvaluationError) as caught:
        search(source, seen)
    return str(caught.value)


class TestVariable:
    @pytest.mark.parametrize(
        ("entry", "expected"),
        [
            ({"value": {"a": [1, 2]}}, {"a": [1, 2]}),
            ({"value": {"a": [1, 2]}, "path": "a[0]"}, 1),
            ({"value": "{{ request.object.metadata.name }}-x"}, "o-x"),
            ({"value": "{{ request.object.spec.x }}"}, [1, 2]),
            ({"value": False}, False),
            ({"value": ""}, ""),
            ({"value": []}, []),
            ({"value": {"a": 0}, "path": "a", "default": 7}, 0),
            ({"path": "request.object.metadata.labels.team"}, "red"),
            ({"path": "request.object.metadata.labels.team", "default": "core"}, "red"),
            ({"path": "request.object.metadata.labels.none", "default": "core"}, "core"),
            ({"path": "request.object.none.deep", "default": {"a": 1}}, {"a": 1}),
            ({"path": "request.object.spec.x[9]", "default": 0}, 0),
            ({"path": "request.object.spec.no", "default": "d"}, "d"),
            ({"path": "request.object.{{ 'spec' }}.x[0]"}, 1),
            ({"value": {"a": 1}, "path": "b.c", "default": "d"}, "d"),
            ({"path": "none.x", "default": "{{ request.object.metadata.name }}"}, "o"),
        ],
    )
    def test_a_variable_returns_its_value_or_its_default(self, entry, expected):
        assert search("v", context(variable(**entry))) == expected

    @pytest.mark.parametrize(
        "entry",
        [
            {"path": "request.object.spec.x[9]"},
            {"path": "request.object.spec.no"},
            {"value": {"a": None}, "path": "a", "default": "not used for what is null"},
            {"value": "{{ request.object.spec.no }}"},
        ],
    )
    def test_null_is_an_error(self, entry):
        reported = failure("v", context(variable(**entry)))
        assert reported == "failed to add context entry for variable v since it evaluated to nil"

    def test_a_null_is_named_where_values_are_withheld_too(self):
        with pytest.raises(EvaluationError) as raised:
            search("v", context(variable(path="request.object.spec.no")))
        assert raised.value.without_values == "context entry v: it evaluated to nil"

    def test_a_missing_path_is_an_error_that_names_the_path(self):
        reported = failure("v", context(variable(path="request.object.none")))
        assert "failed to apply jmespath request.object.none to variable v" in reported
        reported = failure("v", context(variable(value={"a": 1}, path="b")))
        assert "failed to apply jmespath b to variable v" in reported

    def test_a_default_that_cannot_be_evaluated_is_an_error(self):
        entry = variable(path="request.object.metadata.name", default="{{ none.x }}")
        assert "none" in failure("v", context(entry))

    def test_an_invalid_path_made_of_data_is_an_error(self):
        entry = variable(path="{{ request.object.metadata.name }}[")
        assert failure("v", context(entry))


class TestLaziness:
    def test_an_entry_that_no_expression_names_is_not_evaluated(self):
        seen = context(config_map(), variable("broken", path="none.at.all"))
        assert search("request.object.metadata.name", seen) == "o"
        assert search("request.object.metadata.labels.{broken: team}", seen) == {"broken": "red"}

    @pytest.mark.parametrize(
        "source", ["cm", "cm.data.k", "keys(cm)", "[cm]", "{a: cm}", "'' || cm"]
    )
    def test_an_entry_that_an_expression_names_is_loaded(self, source):
        assert needed(source, context(config_map())) == ConfigMapLoad(namespace="n", name="c")

    def test_a_failed_load_is_an_error_before_the_expression_is_evaluated(self):
        loads = {ConfigMapLoad(namespace="n", name="c"): LoadFailure("not there")}
        reported = failure("cm.data.k || 'd'", context(config_map(), loads=loads))
        assert reported == "failed to retrieve config map for context entry cm: not there"

    def test_a_variable_with_a_default_replaces_an_entry_that_failed_to_load(self):
        loads = {ConfigMapLoad(namespace="n", name="c"): LoadFailure("not there")}
        entries = config_map(), variable(path="cm.data.k", default="d")
        assert search("v", context(*entries, loads=loads)) == "d"
        assert needed("v", context(*entries)) == ConfigMapLoad(namespace="n", name="c")

    def test_an_entry_can_read_earlier_entries_but_not_later_ones(self):
        first = variable("first", value=1)
        second = variable("second", path="first")
        assert search("second", context(first, second)) == 1
        assert failure("second", context(second, first))
        assert failure("me", context(variable("me", path="me")))

    def test_the_last_of_two_entries_with_one_name_is_used(self):
        entries = variable("a", value=1), variable("a", path="[a]"), variable("b", path="a[0]")
        assert search("[a, b]", context(*entries)) == [[1], 1]

    def test_an_entry_is_evaluated_once(self):
        calls = []
        seen = Context({}).defer("a", lambda: calls.append(1) or len(calls))
        inner = seen.bind(element=1)
        assert [search("a", inner), search("a", seen), search("a", inner.bind(x=1))] == [1, 1, 1]

    def test_an_entry_is_evaluated_again_after_its_data_is_loaded(self):
        loads = {}
        seen = context(config_map(), loads=loads)
        load = needed("cm", seen)
        loads[load] = MAP
        assert search("cm.data.k", seen) == "v"

    def test_an_entry_reads_the_values_bound_where_it_was_declared(self):
        outer = context(variable(value=1), element="outer")
        inner = with_entries(outer.bind(element="inner"), [variable("mine", path="element")])
        assert search("mine", inner) == "inner"
        with pytest.raises(MissingKey):
            search("mine", outer)

    def test_the_later_of_an_entry_and_a_bound_value_of_one_name_is_used(self):
        seen = context(variable("a", value=1))
        assert search("a", seen.bind(a=2)) == 2
        assert search("a", with_entries(seen.bind(a=2), [variable("a", value=3)])) == 3
        assert search("a", seen) == 1

    def test_entries_are_loaded_in_the_order_of_the_policy(self):
        names = [f"e{n}" for n in range(20)]
        seen = context(*(config_map(name, of=name) for name in names))
        assert [load.name for load in all_needed("@", seen)] == names
        some = all_needed(f"[{', '.join(reversed(names[3:]))}]", seen)
        assert [load.name for load in some] == names[3:]

    def test_the_whole_context_holds_all_entries(self):
        found = search("@", context(variable("a", value=1), variable("b", value=2)))
        assert (found["a"], found["b"]) == (1, 2)


class TestConfigMap:
    def test_a_config_map_entry_provides_data_and_metadata(self):
        loads = {ConfigMapLoad(namespace="n", name="c"): MAP}
        seen = context(config_map(), loads=loads)
        assert search('cm.data."a.b"', seen) == "dotted"
        assert search("cm.metadata.name", seen) == "c"

    @pytest.mark.parametrize(
        ("entry", "expected"),
        [
            ({"namespace": None}, "default"),
            ({"namespace": ""}, "default"),
            ({"namespace": "{{ request.object.spec.empty || '' }}"}, "default"),
            ({"namespace": "x"}, "x"),
            ({"namespace": None, "home": "shop", "bound": "shop"}, "shop"),
            ({"namespace": "shop", "home": "shop", "bound": "shop"}, "shop"),
        ],
    )
    def test_the_namespace_of_a_config_map_defaults_to_that_of_the_policy(self, entry, expected):
        assert needed("cm", context(config_map(**entry))).namespace == expected

    def test_a_namespaced_policy_cannot_read_a_config_map_elsewhere(self):
        entry = config_map(
            namespace="{{ request.object.metadata.name }}", home="shop", bound="shop"
        )
        assert failure("cm", context(entry)) == (
            'context entry cm: configMap namespace "o" is different from policy namespace "shop"'
        )

    def test_the_name_of_a_config_map_can_come_from_data(self):
        entry = config_map(of="{{ request.object.metadata.labels.team }}-settings")
        assert needed("cm", context(entry)).name == "red-settings"

    def test_a_config_map_name_that_is_not_a_string_is_an_error(self):
        entry = config_map(of="{{ request.object.spec.x }}")
        assert "expected a string in a context entry, got list" in failure("cm", context(entry))


class TestApiCall:
    PODS = ApiLoad(method="GET", path="/api/v1/pods")

    def test_an_api_call_provides_the_answer_or_a_part_of_it(self):
        loads = {self.PODS: {"items": [1, 2]}}
        assert search("api", context(api_call(), loads=loads)) == {"items": [1, 2]}
        part = api_call(path="items | length(@)")
        assert search("api", context(part, loads=loads)) == 2

    def test_null_is_an_answer(self):
        seen = context(api_call(path="none"), loads={self.PODS: {"none": None}})
        assert search("api", seen) is None

    def test_the_path_of_a_call_can_come_from_data(self):
        entry = api_call(urlPath="/api/v1/pods/{{ request.object.metadata.name }}")
        assert needed("api", context(entry)) == ApiLoad(method="GET", path="/api/v1/pods/o")

    def test_data_is_sent_in_the_body_of_a_post_only(self):
        data = [
            {"key": "b", "value": "{{ request.object.spec.x }}"},
            {"key": "a", "value": {"c": 1}},
        ]
        load = needed("api", context(api_call(urlPath="/x", method="POST", data=data)))
        assert load.body == '{"a": {"c": 1}, "b": [1, 2]}'
        load = needed("api", context(api_call(urlPath="/x", data=data)))
        assert load.body == ""

    @pytest.mark.parametrize("data", [[{"value": 1}], ["x"], "x", [{"key": 1, "value": 2}]])
    def test_malformed_data_is_an_error_that_names_the_entry(self, data):
        entry = api_call(urlPath="/x", method="POST", data=data)
        assert "context entry api: data: expected" in failure("api", context(entry))

    def test_a_service_call_is_built_from_url_headers_and_ca_bundle(self):
        service = {
            "url": "https://s.shop.svc/{{ request.object.metadata.name }}",
            "headers": [{"key": "X-A", "value": "b"}, {"key": "C", "value": 1}],
            "caBundle": "pem",
        }
        load = needed("api", context(api_call(service=service, bound="shop")))
        assert load == ServiceLoad(
            method="GET",
            url="https://s.shop.svc/o",
            namespace="shop",
            headers=(("X-A", "b"), ("C", "1")),
            ca_bundle="pem",
        )

    def test_a_needed_load_does_not_show_its_url_or_headers(self):
        service = {"url": "https://s/?secret", "headers": [{"key": "a", "value": "secret"}]}
        with pytest.raises(NeedsLoad) as caught:
            search("api", context(api_call(service=service)))
        assert "secret" not in str(caught.value)

    def test_a_default_replaces_the_answer_of_a_failed_call(self):
        loads = {self.PODS: LoadFailure("no answer")}
        reported = failure("api", context(api_call(path="items"), loads=loads))
        assert reported == "failed to execute APICall api: no answer"
        # The default is used as written: no variables are replaced, and no path is applied.
        entry = api_call(path="items", default="{{ x }}")
        assert search("api", context(entry, loads=loads)) == "{{ x }}"
        assert search("api", context(api_call(default=[]), loads=loads)) == []

    def test_a_default_does_not_replace_an_answer_without_the_path(self):
        entry = api_call(path="none.deep", default="d")
        assert "none" in failure("api", context(entry, loads={self.PODS: {"items": []}}))

    def test_a_default_does_not_replace_a_call_that_cannot_be_built(self):
        entry = api_call(urlPath="/{{ none.x }}", default="d")
        assert "none" in failure("api", context(entry))


class TestPathOfAPolicyInANamespace:
    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/namespaces/shop",
            "/api/v1/namespaces/shop/pods",
            "//api/v1//namespaces/shop/pods?labelSelector=a%2Fb",
            "/apis/apps/v1/namespaces/shop/deployments/d",
            "/api/v1/namespaces/%73hop/pods",
        ],
    )
    def test_a_path_inside_the_namespace_of_the_policy_is_loaded(self, path):
        assert needed("api", context(api_call(urlPath=path, bound="shop"))).path == path

    @pytest.mark.parametrize(
        ("path", "reported"),
        [
            ("/api/v1/pods", "does not contain a namespace segment"),
            ("/api/v1/namespaces", "does not contain a namespace segment"),
            ("/api/v1/namespaces/", "does not contain a namespace segment"),
            ("", "does not contain a namespace segment"),
            ("/metrics/x/namespaces/shop", "does not contain a namespace segment"),
            ("/api/v1/pods?x=/namespaces/shop/", "does not contain a namespace segment"),
            ("/api/v1/secrets#/namespaces/shop", "does not contain a namespace segment"),
            ("/api/v1/nodes/n/proxy/namespaces/shop/x", "does not contain a namespace segment"),
            ("/api/v1/namespaces/other/pods", "refers to namespace other, which is different"),
            ("/api/v1/namespaces/other/pods/namespaces/shop", "refers to namespace other"),
            ("/api/v1/%6eamespaces/other/services/s/proxy/namespaces/shop", "namespace other"),
            ("/api/v1/namespaces/shop/../other/pods", "must not contain dots"),
            ("/api/v1/namespaces/shop/%2e%2e/other/pods", "must not contain dots"),
            ("/api/v1/namespaces/shop%2f..%2fother/pods", "must not contain dots"),
        ],
    )
    def test_a_path_outside_the_namespace_of_the_policy_is_refused(self, path, reported):
        assert reported in failure("api", context(api_call(urlPath=path, bound="shop")))


class TestGlobal:
    def test_a_global_entry_provides_the_whole_value_or_a_part_of_it(self):
        whole = GlobalEntry(name="g", reference=template("e"), path=None)
        part = GlobalEntry(name="p", reference=template("e.p"), path=template("[0]"))
        loads = {GlobalLoad(name="e"): {"a": 1}, GlobalLoad(name="e.p"): [7]}
        assert search("[g, p]", context(whole, part, loads=loads)) == [{"a": 1}, 7]
        loads = {GlobalLoad(name="e"): LoadFailure("none")}
        assert failure("g", context(whole, loads=loads)) == "failed to fetch entry key=e: none"


def named(value, **more):
    obj = {"metadata": {"name": value}}
    return Context({"request": {"object": obj, "operation": "CREATE"}, **more})


NAME = "{{ request.object.metadata.name }}"


class TestAddressesMadeOfData:
    @pytest.mark.parametrize(
        "value",
        [
            "x/secrets/y",
            "x/secrets/y?z=",
            "x?watch=true",
            "x#y",
            "x%2Fsecrets%2Fy",
            "%2e%2e",
            "..",
            ".",
            "",
            "x\\y",
            "x\ny",
            "x\0",
        ],
    )
    @pytest.mark.parametrize(
        "path",
        [f"/api/v1/namespaces/n/configmaps/{NAME}", f"/api/v1/namespaces/{NAME}/configmaps"],
    )
    def test_a_value_cannot_leave_its_path_segment(self, path, value):
        seen = with_entries(named(value), [api_call(urlPath=path)])
        reported = failure("api", seen)
        assert reported.startswith("context entry api: urlPath: ")
        assert "secrets" not in reported, "the value may be secret"

    def test_dots_from_two_values_cannot_form_a_path_segment(self):
        path = f"/api/v1/namespaces/n/configmaps/{NAME}{NAME}/x"
        assert "dots" in failure("api", with_entries(named("."), [api_call(urlPath=path)]))

    @pytest.mark.parametrize("value", ["plain", "system:node:a", "a.b-c", "0", "of us"])
    def test_an_ordinary_name_is_inserted_unchanged(self, value):
        path = f"/api/v1/namespaces/{NAME}/configmaps/x-{NAME}?limit=1"
        load = needed("api", with_entries(named(value), [api_call(urlPath=path)]))
        assert unquote(load.path) == f"/api/v1/namespaces/{value}/configmaps/x-{value}?limit=1"

    def test_a_value_in_a_query_stays_one_value(self):
        path = f"/api/v1/pods?labelSelector=app={NAME}&limit=1"
        seen = with_entries(named("a&fieldSelector=b#?%2F/ c"), [api_call(urlPath=path)])
        load = needed("api", seen)
        reported = "app=a%26fieldSelector%3Db%23%3F%252F%2F%20c"
        assert load.path == f"/api/v1/pods?labelSelector={reported}&limit=1"

    @pytest.mark.parametrize("value", ["x/y", "x?y", "..", "x%2Fy", ""])
    def test_a_value_cannot_leave_its_segment_in_the_path_of_a_service(self, value):
        call = api_call(service={"url": f"https://s.n.svc/check/{NAME}/run"})
        assert "url: " in failure("api", with_entries(named(value), [call]))

    @pytest.mark.parametrize(
        "value", ["evil.example/", "me@evil", "evil:80", "evil#", "evil?", ""]
    )
    def test_a_value_in_a_host_must_be_part_of_a_host_name(self, value):
        call = api_call(service={"url": f"https://{NAME}.n.svc/check"})
        assert "within the host" in failure("api", with_entries(named(value), [call]))

    def test_the_whole_address_of_a_service_can_come_from_data(self):
        call = api_call(service={"url": f"{NAME}/check?name={NAME}"})
        load = needed("api", with_entries(named("https://s.n.svc:8443"), [call]))
        assert load.url == "https://s.n.svc:8443/check?name=https%3A%2F%2Fs.n.svc%3A8443"

    @pytest.mark.parametrize("value", ["../secrets/s", "a/b", "a%2Fb", "..", "."])
    def test_a_name_that_no_object_can_have_is_an_error(self, value):
        reported = failure("cm", with_entries(named(value), [config_map(of=NAME)]))
        assert "context entry cm: configMap name" in reported
        reported = failure("cm", with_entries(named(value), [config_map(namespace=NAME)]))
        assert "context entry cm: configMap namespace" in reported


class TestServicesOfAPolicyInANamespace:
    @pytest.mark.parametrize("host", ["s.shop.svc", "s.shop.svc:80", "s.shop.svc.cluster.local"])
    def test_services_of_the_namespace_of_the_policy_can_be_called(self, host):
        call = api_call(service={"url": f"https://{host}/x"}, bound="shop")
        assert needed("api", context(call)).namespace == "shop"

    @pytest.mark.parametrize(
        "host",
        [
            "s.other.svc",
            "s.other.svc.cluster.local",
            "shop.svc",
            "s.shop.svc.evil.example",
            "s.shop.svc@s.other.svc",
            "10.0.0.1",
            "s.shop",
        ],
    )
    def test_services_of_other_namespaces_cannot_be_called(self, host):
        call = api_call(service={"url": f"https://{host}/x"}, bound="shop")
        assert "own namespace only: NAME.shop.svc" in failure("api", context(call))

    def test_a_header_name_made_of_data_cannot_set_the_host(self):
        headers = [{"key": "{{ 'Host' }}", "value": "x"}]
        call = api_call(service={"url": "https://s.shop.svc", "headers": headers})
        assert "set by the connection" in failure("api", context(call))

    @pytest.mark.parametrize("value", ["true", "null", "[]"])
    def test_a_header_made_of_data_is_a_string_or_a_number(self, value):
        headers = [{"key": "X-A", "value": f"{{{{ `{value}` }}}}"}]
        call = api_call(service={"url": "https://s.shop.svc", "headers": headers})
        assert "the header X-A must be a string or a number" in failure("api", context(call))
