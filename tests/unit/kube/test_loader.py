"""Context entries over HTTP, with one local stand-in for the API server and for services."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import orjson
import pytest
from aiohttp import web

from reconciler.clock import SystemClock
from reconciler.engine.loads import ApiLoad, ConfigMapLoad, GlobalLoad, ServiceLoad
from reconciler.errors import Forbidden, Invalid, NoKindMatch, NotFound, Unavailable
from reconciler.kube.client import Client
from reconciler.kube.loader import KubeLoader
from reconciler.memory.cluster import MemoryCluster
from reconciler.serving.pki import Pair, make_ca, make_serving
from tests.https import HOST, serve_https, without_identifiers
from tests.unit.kube.conftest import Api

NOW = SystemClock().now()
LOCAL = ["127.0.0.1", "*.example"]


def get(path):
    return ApiLoad(method="GET", path=path)


@pytest.fixture
def loader(client: Client) -> KubeLoader:
    return KubeLoader(client, LOCAL, timeout=5.0, kinds=MemoryCluster())


@pytest.fixture
def service(api: Api) -> Callable[..., ServiceLoad]:
    """Return a function that builds a call of the stand-in as a service."""

    def asked(path="/answer", method="GET", **more):
        return ServiceLoad(method=method, url=f"{api.address}{path}", **more)

    return asked


class TestApiServer:
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/api/v1/namespaces/kyverno/secrets/kube-retrofit-ca"),
            ("GET", "/apis/coordination.k8s.io/v1/leases"),
            ("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
            ("POST", "/api/v1/namespaces/n/configmaps"),
        ],
    )
    async def test_own_objects_and_protected_paths_are_not_requested(
        self, api, loader, method, path
    ):
        api.answer(f"{method} {path}", {"data": {"tls.key": "k"}})
        with pytest.raises(Invalid, match=r"polic|only for access reviews|ConfigMaps"):
            await loader.load(ApiLoad(method=method, path=path))
        assert not api.seen

    async def test_a_list_across_namespaces_leaves_out_objects_of_the_own_namespace(
        self, api, loader
    ):
        places = ("kyverno", "n")
        items = [{"metadata": {"name": "s", "namespace": place}} for place in places]
        api.answer("GET /api/v1/secrets", {"items": items})
        assert (await loader.load(get("/api/v1/secrets")))["items"] == items[1:]

    async def test_a_config_map_is_loaded_with_data_and_metadata(self, api, loader):
        meta = {"name": "c", "namespace": "n", "labels": {"a": "b"}}
        stored = {"kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}, "binaryData": {}}
        api.answer("GET /api/v1/namespaces/n/configmaps/c", stored)
        found = await loader.load(ConfigMapLoad(namespace="n", name="c"))
        assert found == {"data": {"k": "v"}, "metadata": meta}

    async def test_a_config_map_without_data_is_loaded_with_empty_data(self, api, loader):
        api.answer("GET /api/v1/namespaces/n/configmaps/c", {"metadata": {"name": "c"}})
        found = await loader.load(ConfigMapLoad(namespace="n", name="c"))
        assert found["data"] == {}

    async def test_a_missing_config_map_is_not_found(self, api, loader):
        absent = {"kind": "Status", "reason": "NotFound", "details": {"name": "c"}, "code": 404}
        api.answer("GET /api/v1/namespaces/n/configmaps/c", (404, absent))
        with pytest.raises(NotFound):
            await loader.load(ConfigMapLoad(namespace="n", name="c"))

    @pytest.mark.parametrize("name", ["../../secrets/s", "a/b", "", "..", "."])
    async def test_a_name_cannot_change_the_path(self, api, loader, name):
        with pytest.raises((NotFound, Invalid, NoKindMatch)):
            await loader.load(ConfigMapLoad(namespace="n", name=name))
        assert all(item.path.startswith("/api/v1/namespaces/n/configmaps/") for item in api.seen)

    @pytest.mark.parametrize("query", ["watch=true", "a=b&watch=1", "follow=true", "watch"])
    async def test_a_path_whose_response_never_ends_is_refused(self, api, loader, query):
        with pytest.raises(Invalid, match="the answer never ends"):
            await loader.load(get(f"/api/v1/namespaces/n/pods?{query}"))
        assert api.seen == []

    async def test_a_response_longer_than_the_limit_is_refused(self, api, loader):
        api.answer("GET /api/v1/pods", {"items": ["x" * 1_000_000] * 3})
        with pytest.raises(Invalid, match="longer than 2000000 bytes; ask for less of it"):
            await loader.load(get("/api/v1/pods"))

    async def test_a_call_of_the_api_server_uses_the_own_token(self, api, loader):
        api.answer("GET /apis/apps/v1/deployments", {"items": [1]})
        assert await loader.load(get("/apis/apps/v1/deployments")) == {"items": [1]}
        assert api.seen[0].headers["Authorization"] == "Bearer secret"

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("labelSelector=a=b", {"labelSelector": "a=b"}),
            ("labelSelector=a%3Db", {"labelSelector": "a=b"}),
            ("labelSelector=a in (b,c)&limit=1", {"labelSelector": "a in (b,c)", "limit": "1"}),
            ("pretty", {"pretty": ""}),
            ("", {}),
        ],
    )
    async def test_a_query_is_decoded_and_sent(self, api, loader, query, expected):
        api.answer("GET /api/v1/pods", {"items": []})
        await loader.load(get(f"/api/v1/pods?{query}"))
        assert api.seen[0].query == expected

    async def test_the_body_of_a_load_is_posted(self, api, loader):
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        api.answer(f"POST {path}", {"status": {"allowed": True}})
        load = ApiLoad(method="POST", path=path, body='{"spec":{"a":1}}')
        assert await loader.load(load) == {"status": {"allowed": True}}
        assert api.seen[0].body == {"spec": {"a": 1}}

    @pytest.mark.parametrize("path", ["api/v1/pods", "", "@evil.example/", ".evil.example/"])
    async def test_a_path_must_begin_with_a_slash(self, api, loader, path):
        with pytest.raises(Invalid, match="must begin with /"):
            await loader.load(get(path))
        assert not api.seen

    async def test_a_missing_right_is_named(self, api, loader):
        denied = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
        api.answer("GET /api/v1/namespaces/n/secrets/s", (403, denied))
        with pytest.raises(Forbidden) as caught:
            await loader.load(get("/api/v1/namespaces/n/secrets/s"))
        assert caught.value.permission == "get secrets in namespace n"

    async def test_a_response_that_is_not_json_is_invalid(self, api, loader):
        api.answer("GET /healthz", (200, b"ok"))
        with pytest.raises(Invalid, match="/healthz: the answer is not JSON"):
            await loader.load(get("/healthz"))

    async def test_a_load_of_a_global_entry_is_refused(self, loader):
        with pytest.raises(Invalid, match="GlobalContextEntry g"):
            await loader.load(GlobalLoad(name="g"))


class TestService:
    async def test_a_response_of_a_service_is_decoded_and_no_token_is_sent(
        self, api, loader, service
    ):
        api.answer("GET /answer", {"a": [1]})
        assert await loader.load(service("/answer?q=1%2B1")) == {"a": [1]}
        (seen,) = api.seen
        assert "Authorization" not in seen.headers
        assert seen.query == {"q": "1+1"}

    async def test_data_and_headers_are_sent(self, api, loader, service):
        api.answer("POST /answer", {"ok": True})
        headers = (("Authorization", "Basic abc"), ("X-Team", "red"))
        await loader.load(service(method="POST", body='{"a":1}', headers=headers))
        (seen,) = api.seen
        assert seen.body == {"a": 1}
        assert seen.headers["Content-Type"] == "application/json"
        assert (seen.headers["Authorization"], seen.headers["X-Team"]) == ("Basic abc", "red")

    async def test_a_content_type_in_the_policy_overrides_the_default(self, api, loader, service):
        api.answer("POST /answer", {})
        typed = (("Content-Type", "application/x.own+json"),)
        await loader.load(service(method="POST", body="{}", headers=typed))
        assert api.seen[0].headers["Content-Type"] == "application/x.own+json"

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.2/",
            "http://localhost/",
            "http://127.0.0.1.evil.test/",
            "http://127.0.0.1@evil.test/",
            "http://example/",
            "https://[::1]/",
        ],
    )
    async def test_a_host_that_is_not_allowed_is_not_called(self, loader, url):
        with pytest.raises(Invalid, match="allow it with --service-hosts"):
            await loader.load(ServiceLoad(method="GET", url=url))

    async def test_without_allowed_hosts_no_service_is_called(self, api, client, service):
        with pytest.raises(Invalid, match=r"service 127\.0\.0\.1 may not be called"):
            await KubeLoader(client, (), kinds=MemoryCluster()).load(service())
        assert not api.seen

    async def test_a_wildcard_allows_hosts(self, client):
        # The name does not resolve; the error shows that the loader tried to call it.
        loader = KubeLoader(client, ["*.invalid"], timeout=5.0, kinds=MemoryCluster())
        with pytest.raises(Unavailable, match=r"service a\.invalid does not answer"):
            await loader.load(ServiceLoad(method="GET", url="http://A.invalid/"))

    @pytest.mark.parametrize(
        "url", ["", "answer", "ftp://127.0.0.1/", "file:///etc/passwd", "http://", "http://[x/"]
    )
    async def test_only_http_and_https_urls_are_called(self, loader, url):
        with pytest.raises(Invalid, match="not an http or https URL"):
            await loader.load(ServiceLoad(method="GET", url=url))

    async def test_an_invalid_port_is_refused(self, loader):
        with pytest.raises(Invalid, match=r"service 127\.0\.0\.1"):
            await loader.load(ServiceLoad(method="GET", url="http://127.0.0.1:99999/"))

    async def test_a_header_with_a_line_break_is_refused(self, loader, service):
        split = (("X-A", "b\r\nX-C: d"),)
        with pytest.raises(Invalid, match="header"):
            await loader.load(service(headers=split))

    async def test_a_redirect_is_not_followed(self, api, loader, service):
        api.answer("GET /answer", (302, b"", {"Location": "/elsewhere"}))
        with pytest.raises(Invalid, match="HTTP 302"):
            await loader.load(service())
        assert [item.path for item in api.seen] == ["/answer"]

    @pytest.mark.parametrize(
        ("status", "error"),
        [(400, Invalid), (404, Invalid), (500, Unavailable), (503, Unavailable)],
    )
    async def test_an_error_status_of_a_service_is_an_error_without_its_body(
        self, api, loader, service, status, error
    ):
        api.answer("GET /answer", (status, {"secret": "x"}))
        with pytest.raises(error, match=f"service 127.0.0.1: HTTP {status}") as caught:
            await loader.load(service())
        assert "secret" not in str(caught.value)

    async def test_an_invalid_response_of_a_service_is_reported_without_the_url(
        self, api, loader, service
    ):
        api.answer("GET /answer", (200, b"<html>"))
        with pytest.raises(
            Invalid, match=r"service 127\.0\.0\.1: the answer is not JSON"
        ) as caught:
            await loader.load(service("/answer?token=secret"))
        assert "secret" not in str(caught.value)

    async def test_a_response_in_many_chunks_is_read_completely(self, api, loader, service):
        whole = orjson.dumps(["x" * 1000] * 500)

        async def slowly(request):
            response = web.StreamResponse()
            await response.prepare(request)
            for start in range(0, len(whole), 50_000):
                await response.write(whole[start : start + 50_000])
                await asyncio.sleep(0)
            return response

        api.answer("GET /answer", slowly)
        assert await loader.load(service()) == orjson.loads(whole)

    async def test_an_endless_response_is_refused_at_the_limit(self, api, loader, service):
        async def for_ever(request):
            response = web.StreamResponse()
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                while True:
                    await response.write(b"x" * 100_000)
            return response

        api.answer("GET /answer", for_ever)
        with pytest.raises(Invalid, match="longer than 2000000 bytes"):
            await loader.load(service())

    async def test_a_service_that_does_not_respond_in_time_is_unavailable(
        self, api, client, service
    ):
        over = asyncio.Event()

        async def silent(_request):
            await over.wait()
            return web.Response()

        api.answer("GET /answer", silent)
        loader = KubeLoader(client, LOCAL, timeout=0.2, kinds=MemoryCluster())
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1 does not answer: no answer in time"):
            await loader.load(service())
        over.set()

    async def test_a_service_without_a_listener_is_unavailable(self, loader):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
            with pytest.raises(Unavailable, match="does not answer"):
                await loader.load(ServiceLoad(method="GET", url=url))


class TestCertificates:
    @pytest.fixture
    def ca(self) -> Pair:
        return make_ca(NOW)

    @pytest.fixture
    async def url(self, api: Api, ca: Pair) -> AsyncIterator[str]:
        """Serve the stand-in over TLS with a certificate of the CA, and yield its URL."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", api.handle)
        api.answer("GET /answer", {"ok": True})
        async with serve_https(app, make_serving(ca, [HOST], NOW)) as address:
            yield f"{address}/answer"

    async def test_the_bundle_of_the_policy_is_trusted(self, loader, ca, url):
        load = ServiceLoad(method="GET", url=url, ca_bundle=ca.certificate.decode())
        assert await loader.load(load) == {"ok": True}

    @pytest.mark.usefixtures("strict")
    async def test_a_ca_without_key_identifiers_is_trusted(self, api, loader):
        pair = without_identifiers()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", api.handle)
        api.answer("GET /answer", {"ok": True})
        async with serve_https(app, pair) as address:
            bundle = pair.bundle.decode()
            load = ServiceLoad(method="GET", url=f"{address}/answer", ca_bundle=bundle)
            assert await loader.load(load) == {"ok": True}

    async def test_a_certificate_of_another_ca_is_not_trusted(self, api, loader, url):
        other = make_ca(NOW).certificate.decode()
        for bundle in (other, ""):
            load = ServiceLoad(method="GET", url=url, ca_bundle=bundle)
            with pytest.raises(Unavailable, match="certificate is not trusted"):
                await loader.load(load)
        assert not api.seen

    @pytest.mark.parametrize("bundle", ["none", "-----BEGIN CERTIFICATE-----\nno", "é"])
    async def test_an_invalid_ca_bundle_is_refused(self, loader, bundle):
        load = ServiceLoad(method="GET", url="https://127.0.0.1/", ca_bundle=bundle)
        with pytest.raises(Invalid, match="caBundle"):
            await loader.load(load)
