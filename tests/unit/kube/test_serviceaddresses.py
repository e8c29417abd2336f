"""The addresses at which a service may be called, whatever its name resolves to."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest
from aiohttp import web

from reconciler.engine.loads import ServiceLoad
from reconciler.errors import Invalid, Unavailable
from reconciler.kube.loader import KubeLoader
from reconciler.kube.serviceaddresses import ServiceResolver
from reconciler.memory.cluster import MemoryCluster

HOSTS = ("*.svc", "*.svc.cluster.local", "localhost")
ASKED = "costs.shop.svc"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, ...]]]:
    """Replace DNS lookups by the given answers, one per lookup."""

    def serve(*answers):
        left = list(answers)

        async def getaddrinfo(_loop, host, port, **_options):
            canonical, *addresses = left.pop(0)
            return [
                (
                    socket.AF_INET6 if ":" in address else socket.AF_INET,
                    socket.SOCK_STREAM,
                    6,
                    "" if index else canonical or host,
                    (address, port),
                )
                for index, address in enumerate(addresses)
            ]

        monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)
        return left

    return serve


def resolver(*hosts, namespace="", search=("shop.svc.cluster.local", "cluster.local")):
    return ServiceResolver((*HOSTS, *hosts), namespace, search)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "169.254.169.254",
        "169.254.20.10",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
    ],
)
async def test_loopback_link_local_and_cloud_addresses_are_refused(names, address):
    names(("", "10.0.0.1", address))
    with pytest.raises(Invalid, match="may not be called: it resolves to"):
        await resolver().resolve(ASKED, 80)


async def test_an_address_of_the_own_pod_is_refused(names):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent; the system only reports the source address that it would use.
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        own = probe.getsockname()[0]
    names(("", own))
    with pytest.raises(Invalid, match="which is this Pod or its node"):
        await resolver().resolve(ASKED, 80)


async def test_a_loopback_address_is_called_if_the_settings_list_it(names):
    names(("", "127.0.0.1"), ("", "127.0.0.1"))
    (found,) = await resolver("127.0.0.1").resolve("localhost", 80)
    assert found["host"] == "127.0.0.1"
    with pytest.raises(Invalid, match="which is this Pod or its node"):
        await resolver("*").resolve("localhost", 80)


@pytest.mark.parametrize(
    "canonical", ["", ASKED, f"{ASKED}.", "Costs.Shop.svc", f"{ASKED}.cluster.local"]
)
async def test_a_service_is_called_at_all_its_addresses(names, canonical):
    names((canonical, "10.0.0.1", "10.0.0.2"))
    found = await resolver(namespace="shop").resolve(ASKED, 8080)
    assert [(item["host"], item["port"]) for item in found] == [
        ("10.0.0.1", 8080),
        ("10.0.0.2", 8080),
    ]


@pytest.mark.parametrize("canonical", ["evil.example", f"{ASKED}.evil.example", "kubernetes"])
async def test_an_alias_of_another_host_is_refused(names, canonical):
    names((canonical, "10.0.0.1"))
    with pytest.raises(Invalid, match=f"it is an alias of {canonical}"):
        await resolver().resolve(ASKED, 80)


async def test_an_alias_of_an_allowed_service_is_for_cluster_policies_only(names):
    other = "prices.other.svc.cluster.local"
    names((other, "10.0.0.1"), (other, "10.0.0.1"))
    assert await resolver().resolve(ASKED, 80)
    with pytest.raises(Invalid, match=f"it is an alias of {other}"):
        await resolver(namespace="shop").resolve(ASKED, 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "169.254.169.254"])
async def test_an_address_in_place_of_a_name_is_checked_as_well(client, host):
    loader = KubeLoader(client, ["*"], timeout=5.0, kinds=MemoryCluster())
    with pytest.raises(Invalid, match="may not be called: it resolves to"):
        await loader.load(ServiceLoad(method="GET", url=f"http://{host}:9/"))


async def test_the_checked_address_is_the_one_that_is_called(client, names):
    # A second lookup would return another address, as in DNS rebinding.
    async with _answering() as port:
        left = names(("", "127.0.0.1"), ("", "127.0.0.2"))
        loader = KubeLoader(client, ["*.svc", "127.0.0.1"], timeout=5.0, kinds=MemoryCluster())
        url = f"http://{ASKED}:{port}/"
        assert await loader.load(ServiceLoad(method="GET", url=url)) == {"host": f"{ASKED}:{port}"}
        assert len(left) == 1
        with pytest.raises((Invalid, Unavailable)):
            await loader.load(ServiceLoad(method="GET", url=url))


@contextlib.asynccontextmanager
async def _answering():
    async def answer(request):
        return web.json_response({"host": request.headers["Host"]})

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
