"""The server of the page: its responses, the hosts that it accepts, and the data that it omits."""

import asyncio
import hashlib
import re
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from reconciler.api.updaterequest import State
from reconciler.cli.ui.server import HEADERS
from tests.architecture.conftest import ROOT
from tests.unit.cli.ui.cluster import APIS, REQUESTS, Cluster, name
from tests.unit.cli.ui.conftest import Page
from tests.unit.kube.conftest import write_kubeconfig

STATIC = ROOT / "reconciler/cli/ui/static"


async def test_the_board_has_the_data_of_the_top_command(page: Page) -> None:
    board = await (await page.get("/api/board")).json()
    assert [item["policy"] for item in board["policies"]] == ["reload", "rollout"]
    assert board["waiting"] == 3
    assert board["leader"] == {"name": "one", "fresh": True}
    assert board["policies"][1]["rollout"] == {"done": 30, "total": 120, "timeLeft": "9s"}


async def test_repeated_board_requests_share_reads_of_the_cluster(
    page: Page, cluster: Cluster
) -> None:
    for _ in range(10):
        assert (await page.get("/api/board")).status == 200
    assert len(cluster.api.calls(f"{APIS}/v1/clusterpolicies")) <= 2


async def test_requests_are_selected_by_the_api_server(page: Page, cluster: Cluster) -> None:
    answer = await page.get("/api/requests", params={"policy": "a,b", "state": "Failed"})
    assert len((await answer.json())["requests"]) == 3
    (call,) = cluster.api.calls(REQUESTS)
    assert call.query["fieldSelector"] == r"spec.policy=a\,b,status.state=Failed"
    assert call.query["limit"] == "100"
    await page.get("/api/requests", params={"state": State.PENDING.value})
    waiting = cluster.api.calls(REQUESTS)[-1].query["fieldSelector"]
    assert waiting == "status.state!=Completed,status.state!=Failed,status.state!=Skip"


async def test_recorded_data_is_not_in_responses(page: Page) -> None:
    for path in ("/api/requests", f"/api/requests/{name(2)}"):
        text = await (await page.get(path)).text()
        assert "TargetFailed" in text
        assert "s3cret" not in text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/requests?state=Done", 400, "Done is not a state"),
        ("/api/requests/kube-root-ca.crt", 404, "not the name of a request"),
        (f"/api/requests/{name(9)}", 404, ""),
        ("/static/../server.py", 404, ""),
        ("/static/secrets", 404, "not found"),
        ("/elsewhere", 404, "not found"),
    ],
)
async def test_an_error_has_a_status_and_a_message(
    page: Page, path: str, status: int, said: str
) -> None:
    answer = await page.get(path)
    assert answer.status == status
    assert said in (await answer.json())["error"]
    assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]


async def test_an_expired_position_and_a_missing_right_are_distinguished(
    page: Page, cluster: Cluster
) -> None:
    cluster.api.answers[REQUESTS].clear()
    cluster.api.answer(REQUESTS, (410, {"kind": "Status", "reason": "Expired"}))
    assert (await page.get("/api/requests?continue=old")).status == 410
    cluster.api.answers[REQUESTS].clear()
    cluster.api.answer(REQUESTS, (403, {"kind": "Status", "reason": "Forbidden", "message": "no"}))
    refused = await page.get("/api/requests")
    assert refused.status == 400
    assert "you may not" in (await refused.json())["error"]


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:80", "ui.example.com"])
async def test_the_server_accepts_addresses_and_its_own_names_as_host(
    page: Page, host: str
) -> None:
    assert (await page.get("/", headers={"Host": host})).status == 200


async def test_a_request_for_another_host_name_is_refused(page: Page) -> None:
    for path in ("/", "/api/board", f"/api/requests/{name(2)}"):
        answer = await page.get(path, headers={"Host": "rebound.example.org"})
        assert answer.status == 403
        assert "--hostname" in (await answer.json())["error"]


async def test_every_response_forbids_content_of_other_origins(page: Page) -> None:
    for path in ("/", "/api/board", "/static/app.js", "/healthz"):
        answer = await page.get(path)
        assert HEADERS.items() <= dict(answer.headers).items()
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_the_page_has_no_inline_script_and_no_url_of_another_server() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)|<style| on\w+=| style=", page) == []
    own = [page, *((STATIC / name).read_text() for name in ("app.js", "app.css"))]
    assert [text for text in own if "://" in text] == []


def test_vendored_files_have_the_listed_checksums() -> None:
    vendor = STATIC / "vendor"
    rows = re.findall(r"^\| `([\w.-]+)` \|.* `([0-9a-f]{64})` \|$", _list(vendor), re.MULTILINE)
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in vendor.iterdir()
        if file.suffix in (".js", ".css")
    }
    assert dict(rows) == found


def _list(vendor: Path) -> str:
    return (vendor / "README.md").read_text()


async def test_the_server_writes_nothing(page: Page, cluster: Cluster) -> None:
    for path in ("/", "/api/board", "/api/requests", f"/api/requests/{name(1)}"):
        await page.get(path)
        assert (await page.post(path)).status == 405
    assert {call.method for call in cluster.api.seen} == {"GET"}


async def test_the_command_serves_until_it_is_interrupted(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = write_kubeconfig(tmp_path / "kubeconfig", cluster.api.address, {"token": "t"})
    program = str(Path(sys.executable).with_name("retrofit"))
    words = ("ui", "--port", "0", "--kubeconfig", str(file))
    serving = await asyncio.create_subprocess_exec(
        program, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert serving.stdout is not None
    try:
        async with asyncio.timeout(60):
            address = (await serving.stdout.readline()).decode().split()[0]
            async with aiohttp.ClientSession() as session, session.get(address) as answer:
                assert "<title>kube-retrofit</title>" in await answer.text()
            serving.send_signal(signal.SIGINT)
            _, said = await serving.communicate()
    finally:
        if serving.returncode is None:
            serving.kill()
            await serving.wait()
    assert (serving.returncode, said) == (0, b"")
