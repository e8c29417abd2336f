"""Lists of large objects are read in small pages."""

import pytest
from aiohttp import web

from reconciler.api.meta import Kind
from reconciler.errors import ResponseTooLarge
from reconciler.kube.reader import KubeReader

SECRETS = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)
PATH = "/api/v1/secrets"
PAGE = 100_000


def serve(api, count, size):
    """Serve a list of objects of the given size, page by page, as an API server does."""

    async def page(request):
        begin, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        end = min(count, begin + limit)
        items = [
            {"metadata": {"name": f"s{n}"}, "data": {"x": "x" * size(n)}}
            for n in range(begin, end)
        ]
        meta = {"continue": str(end)} if end < count else {}
        return web.json_response({"metadata": meta, "items": items})

    api.answer(f"GET {PATH}", page)


async def read(reader, limit=500):
    """Return the names of all objects and the sizes of the pages."""
    names, sizes, token = [], [], ""
    while True:
        page = await reader.list_page(SECRETS, limit=limit, token=token)
        names += [item["metadata"]["name"] for item in page.items]
        sizes.append(page.size)
        token = page.token
        if not token:
            return names, sizes


async def test_small_objects_are_read_in_pages_of_the_requested_limit(api, client):
    serve(api, 1000, lambda _: 10)
    names, sizes = await read(KubeReader(client, page_bytes=PAGE))
    assert names == [f"s{n}" for n in range(1000)]
    assert len(sizes) == len(api.seen) == 2


async def test_large_objects_are_read_in_small_pages(api, client):
    serve(api, 100, lambda _: 10_000)
    reader = KubeReader(client, page_bytes=PAGE)
    names, sizes = await read(reader)
    assert names == [f"s{n}" for n in range(100)]
    assert max(sizes) <= PAGE
    tried = len(api.seen)
    assert tried <= len(sizes) + 4
    _, sizes = await read(reader)
    assert len(api.seen) - tried == len(sizes), "what is known of a kind is not tried again"


async def test_an_object_larger_than_a_page_is_read_alone(api, client):
    serve(api, 5, lambda _: 2 * PAGE)
    names, sizes = await read(KubeReader(client, page_bytes=PAGE))
    assert names == [f"s{n}" for n in range(5)]
    assert len(sizes) == 5


async def test_large_objects_after_small_ones_stay_within_the_page_size(api, client):
    serve(api, 600, lambda n: 10 if n < 500 else 20_000)
    names, sizes = await read(KubeReader(client, page_bytes=PAGE))
    assert names == [f"s{n}" for n in range(600)]
    assert max(sizes) <= PAGE


async def test_pages_grow_again_when_objects_become_smaller(api, client):
    serve(api, 50, lambda _: 20_000)
    reader = KubeReader(client, page_bytes=PAGE)
    await read(reader)
    api.answers.clear()
    serve(api, 500, lambda _: 10)
    for _ in range(5):
        _, sizes = await read(reader)
    assert len(sizes) == 1


async def test_a_page_size_of_zero_means_no_limit(api, client):
    serve(api, 100, lambda _: 10_000)
    _, sizes = await read(KubeReader(client, page_bytes=0))
    assert len(sizes) == 1


async def test_a_response_larger_than_the_limit_is_an_error(api, client):
    serve(api, 100, lambda _: 10_000)
    with pytest.raises(ResponseTooLarge, match="larger than 1000 bytes"):
        await client.request("GET", PATH, query={"limit": "100"}, most=1000)
    answer = await client.request("GET", PATH, query={"limit": "1"}, most=20_000)
    assert len(answer) > 10_000
