"""The page on a prepared cluster, over HTTP and in a browser."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from reconciler.cli.desk.live import Address
from reconciler.cli.ui.server import application
from reconciler.cli.work.place import workplace
from tests.unit.cli.ui.browser import Browser, find_browser, open_browser
from tests.unit.cli.ui.cluster import Cluster
from tests.unit.kube.conftest import open_api, write_kubeconfig

Page = TestClient[Any, Any]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """An API server with two policies and some requests."""
    async with open_api() as api:
        yield Cluster(api)


@pytest.fixture
async def page(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Page]:
    """A client of the page's server, which is started as the command starts it."""
    file = write_kubeconfig(tmp_path / "kubeconfig", cluster.api.address, {"token": "t"})
    address = asdict(Address(kubeconfig=str(file)))
    async with workplace(**address, requests_namespace="kyverno") as place:
        server = TestServer(application(place, ["ui.example.com"]))
        async with TestClient(server) as client:
            yield client


@pytest.fixture
async def browser(page: Page, tmp_path: Path) -> AsyncIterator[Browser]:
    """A headless Chromium that shows the page."""
    program = find_browser()
    if not program:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    async with open_browser(program, tmp_path / "profile") as found:
        await found.go(str(page.make_url("/")))
        yield found
